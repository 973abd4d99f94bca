"""The parameters that several tools share, each with its description."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

SESSION = "id (or its beginning), name or key; @ is the newest one here"
POINT = (
    "SESSION:12 (the end of turn 12), SESSION:12^ (before it), SESSION:e40 (entry 40), SESSION:NAME (a checkpoint) or"
    " SESSION/BRANCH"
)

SessionRef: TypeAlias = Annotated[str, Meta(description=f"A session: {SESSION}.", min_length=1)]
MaybeSession: TypeAlias = Annotated[str, Meta(description=f"A session: {SESSION}.")] | None
PointRef: TypeAlias = Annotated[
    str, Meta(description=f"A point: {POINT}; SESSION is an id, a name or @.", min_length=1)
]
AgentId: TypeAlias = Annotated[str, Meta(description="The agent's id.", min_length=1)]
MaybeAgent: TypeAlias = Annotated[str, Meta(description="An agent's id.")] | None
Limit: TypeAlias = Annotated[int, Meta(description="At most this many; 20 by default.", ge=1, le=100)]
Cursor: TypeAlias = (
    Annotated[str, Meta(description="For more: the cursor of the last answer, the other arguments unchanged.")] | None
)
Since: TypeAlias = (
    Annotated[str, Meta(description="Only since then: 2026-01-31, 2026-01-31T14:00, or 10m, 6h, 2w (ago).")] | None
)
Digest: TypeAlias = (
    Annotated[
        str,
        Meta(description="Leave it out to see what would happen. To do it, repeat the digest of that answer."),
    ]
    | None
)
Name: TypeAlias = Annotated[str, Meta(description="A name to refer to it by.", max_length=200)] | None
