"""The agent's files: scanned, kept, attributed, compared and restored.

Two layers. ``disk`` knows only directories: it scans them, plans changes and applies them, and imports nothing that
knows a session. The modules next to it connect directories with sessions: snapshots as entries of the log, the journal
of a change, who changed what.
"""
