"""Tools for testing with Takeback, and the suite that every backend must pass.

``contract.StoreContract`` is the conformance suite, ``model`` a session kept in plain dicts, ``machine`` a Hypothesis
state machine that compares the two, ``faults`` a file system that fails on demand, ``clock`` a clock moved by hand,
``validators`` the providers' rules for requests. It needs the extra ``takeback[testing]``.
"""
