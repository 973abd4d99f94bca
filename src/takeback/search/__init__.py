"""Search: finding what was said and done, over all sessions, in every script.

What is searched lies in an index of its own, which only repeats what the store holds. It is never part of a write: a
search first adds what is new, from the feed, so it is complete when it answers. It can be deleted at any time.
"""
