"""Taking sessions out of a store: lines that can be read back (``jsonl``), a page for people (``markdown``, ``html``).

Shells on the API, as the command line is. What is likely a secret is found by ``secrets``; files are written whole or
not at all by ``files``.
"""
