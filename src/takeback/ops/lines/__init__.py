"""A store as lines: every record by names that hold everywhere, without scope, local numbers or checks.

``records`` says what a line can be, ``reading`` gives the records of a store in an order in which each names only what
came before it, ``writing`` puts such records into an empty store. What a store can compute for itself - checks, jumps,
the feed - is not in them, so a file cannot contradict itself there; the rest is judged by ``verify`` once it is
written.
"""

from . import reading, records, writing

__all__ = ["reading", "records", "writing"]
