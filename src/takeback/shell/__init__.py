"""What all shells share: documents for programs, times and errors for people, and the secrets to hide.

The command line, the exporters and any later shell present the same things the same way because they all format them
here. Nothing in this package reads a terminal, the environment or a database.
"""
