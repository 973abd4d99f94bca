"""The demo: a scripted coding agent in a scratch directory, in three acts, each with proofs.

``shell`` types commands into a real shell and reads the output; ``scratch`` creates the directory; ``agent`` is the
agent, a separate program that is copied there; ``story`` holds what is typed and what must be true afterwards. Nothing
is faked: what is printed is what the commands wrote, and a proof reads the files and the store, never the output.
"""
