"""Transfer: everything of one store into another, or some sessions of it, through transactions and shared SQL alone.

Numbers are local to a store, so everything is named by what never changes: ids of sessions, branches, operations and
checkpoints, hashes of content. Whatever is under way in the destination has the form of something purged: nobody sees
it, verify finds nothing wrong with it, and calling again goes on with it. Only growing is copied; what was
changed on both sides is told and left alone. The loop that drives these operations is the client's.
"""

from . import agents, base, choice, contents, finishing, moments, pages, records, soundness, staging

__all__ = [
    "agents",
    "base",
    "choice",
    "contents",
    "finishing",
    "moments",
    "pages",
    "records",
    "soundness",
    "staging",
]
