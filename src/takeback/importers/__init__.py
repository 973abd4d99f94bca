"""Importing sessions into a store: from the lines of an export (``jsonl``), or from a mirror's folder (``folder``).

Shells over the API. Whatever comes from a file is checked in a scratch store before the real one is touched.
"""
