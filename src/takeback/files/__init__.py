"""The agent's files: scanned, kept, attributed, compared and put back.

Two floors. ``disk`` knows directories only: it scans them, plans changes and applies them, and imports nothing that
knows a session. The modules beside it join directories with sessions: snapshots as entries of the log, the journal
of a change, who changed what.
"""
