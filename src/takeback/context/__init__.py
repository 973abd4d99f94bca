"""What a model is sent: the messages of a session in a provider's own format, valid from any point of the log.

``regular`` judges a log step by step. Regular steps are sent as they were stored; ``read`` turns the others into one
normal form, ``repair`` makes that valid under a provider's rules, and the provider writes it out. Nothing here knows
which providers exist. A valid message of the same provider comes out as the JSON it was stored as, either way.
"""
