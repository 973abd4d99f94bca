"""Tools to test against Takeback, and the suite that every backend must pass.

``contract.StoreContract`` is the conformance kit, ``model`` a dict that behaves like a store, ``machine`` a
Hypothesis state machine that compares the two, ``faults`` a file system that fails on demand, ``clock`` a
clock moved by hand, ``validators`` the rules of the providers for requests. Needs the extra ``takeback[testing]``.
"""
