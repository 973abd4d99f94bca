"""What a model is sent: the messages of a session in a provider's own format, valid from any point of the log.

``build`` goes through a context once, from top to bottom. ``regular`` divides the log into steps and judges each of
them. ``read`` turns the odd ones into items of one normal form; between them a run (``runs``) stands for regular steps,
which are sent as they were stored. ``repair`` makes that valid under a provider's rules (``models``, ``pairing``,
``naming``), ``budget`` chooses what fits (``tokens``, ``shorten``), and the provider writes it out. Nothing here knows
which providers exist. A valid message of the same provider comes out as the JSON it was stored as, either way.

``summary`` and ``walkthrough`` are documents for the next model and for people.
"""
