"""What a model is sent: the messages of a session in a provider's own form, valid from any point of the log.

``read`` turns stored messages into one normal form, ``repair`` makes that valid under a provider's rules, and the
provider writes it out; nothing here knows which providers there are. A message that is valid and of the same provider
goes through all three as the JSON it was stored as. Most of a long log is plainly right: ``beginning`` finds that at a
glance, and it skips all this.
"""

from .build import build, outlasting
from .value import Context

__all__ = ["Context", "build", "outlasting"]
