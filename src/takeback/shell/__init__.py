"""What the shells share: documents for programs, times and errors for people, and what must not be shown.

The command line, the exporters and every later shell present the same things in the same way because they all take
it from here. Nothing in this room reads a terminal, an environment or a database.
"""
