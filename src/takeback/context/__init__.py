"""What a model is sent: the messages of a session in a provider's own format, valid from any point of the log.

``read`` turns stored messages into one normal form, ``repair`` makes that valid under a provider's rules, and the
provider writes it out; nothing here knows which providers exist. A valid message of the same provider passes through
all three as the JSON it was stored as. Most of a long log is plainly valid: ``beginning`` recognises that part in one
quick pass, and it skips all three.
"""
