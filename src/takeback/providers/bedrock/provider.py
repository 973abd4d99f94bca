"""Amazon Bedrock's Converse: what contexts need to know of it."""

from __future__ import annotations

from ..provider import Provider
from .glance import judge
from .read import read, sound
from .rules import RULES
from .write import plain, request, write

PROVIDER = Provider(
    rules=RULES,
    read=read,
    write=write,
    plain=plain,
    request=request,
    judge=judge,
    sound=sound,
    prices="aws",
)
