"""The demo: a scripted coding agent in a scratch directory, three acts, each with its proof.

``shell`` types commands into a real shell and reads what comes back; ``scratch`` makes the directory; ``agent`` is the
agent, a program of its own that is copied there; ``story`` is what is typed, and what must hold afterwards. Nothing is
acted: what is printed is what the commands wrote, and a proof looks at the files and the store, not at the text.
"""
