"""The schemas of JSON stored beside the log: operations, details of sessions, fields of agents.

None of it is covered by the hash chain, so a file from elsewhere can contain anything there. A malformed value would
fail only when somebody lists operations or undoes one; ``verify`` finds it first, and so an import refuses it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from .. import codec
from ..errors import Error

Flag = Literal[0, 1]
Seq = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Place = tuple[str, Seq, Flag]
_UNSET = msgspec.UNSET
_Maybe = msgspec.UnsetType


class FilesView(msgspec.Struct):
    """What a move did in a workspace."""

    paths: list[str]
    workspace: str | _Maybe | None = _UNSET
    root: str | _Maybe | None = _UNSET


class Things(msgspec.Struct, forbid_unknown_fields=True):
    """The properties that an operation changed, as they were before or after it."""

    head: Place | _Maybe = _UNSET
    branch: tuple[str, Flag] | _Maybe = _UNSET
    session: tuple[str, Flag] | _Maybe = _UNSET
    below: dict[str, tuple[str, Seq, Flag, Flag]] | _Maybe = _UNSET
    files: FilesView | _Maybe = _UNSET
    title: str | _Maybe | None = _UNSET
    name: str | _Maybe | None = _UNSET
    tags: str | _Maybe = _UNSET
    archived: Flag | _Maybe = _UNSET
    pinned: Flag | _Maybe = _UNSET
    hidden: Flag | _Maybe = _UNSET
    workspace: str | _Maybe = _UNSET
    key: str | _Maybe = _UNSET
    status: str | _Maybe = _UNSET
    metadata: dict[str, Any] | _Maybe = _UNSET
    fields: dict[str, Any] | _Maybe = _UNSET
    sessions: dict[str, Flag] | _Maybe = _UNSET
    heads: dict[str, Place] | _Maybe = _UNSET
    state: int | _Maybe = _UNSET
    redacted: list[str] | _Maybe = _UNSET


class Detail(msgspec.Struct):
    """The details of a session; other members are kept as they are."""

    metadata: dict[str, Any] = {}
    prompt: str | None = None
    model: str | None = None
    provider: str | None = None
    task: str | None = None
    run_id: str | None = None


class AgentFields(msgspec.Struct):
    """The fields of an agent; other members are kept as they are."""

    name: str | None = None
    type: str | None = None
    system_prompt: str | None = None
    capabilities: list[Any] = []
    config: dict[str, Any] = {}
    metadata: dict[str, Any] = {}


def fault(data: bytes, form: type[msgspec.Struct]) -> str:
    """Describe how stored JSON violates its schema; empty if it does not."""
    try:
        msgspec.convert(codec.decode(data), form)
    except (msgspec.MsgspecError, Error, RecursionError) as error:
        return str(error)[:200]
    return ""


def tags_fault(tags: str) -> str:
    """Describe what is wrong with a session's stored tags, each of which stands between newlines; empty if nothing."""
    whole = not tags or (len(tags) > 2 and tags[0] == tags[-1] == "\n" and "\n\n" not in tags)
    return "" if whole else "they are not encoded as tags"
