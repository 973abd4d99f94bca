"""Stores that agents use today, each driven the way its own framework drives it, one module per peer.

None is tuned and none is slowed down: all of them sync each commit, because that is the default of the SQLite
that Python links. A module imports its own library only, so that a process which measures one peer does not pay
for the others; preparing is the peer's too where it can be, and otherwise writes the rows that the peer would.
"""
