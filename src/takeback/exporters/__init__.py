"""Exporting sessions: as lines that can be imported (``jsonl``), or as a page for people (``markdown``, ``html``).

Like the command line, exporters are shells over the API. ``shell.secrets`` finds likely secrets; ``files`` writes a
file completely or not at all.
"""
