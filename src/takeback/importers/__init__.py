"""Bringing sessions into a store: from lines that an export wrote (``jsonl``), from a folder of a mirror (``folder``).

Shells on the API. Whatever comes from a file is judged in a store of its own before the real one is touched.
"""
