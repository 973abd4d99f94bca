"""Tools for agents: a store's history and state as functions that a model can call.

    tools = takeback.tools.bind(store, allow=("state", "checkpoint"))
    reply = client.messages.create(tools=tools.anthropic(), ...)
    answer = tools.call(call.name, call.input)

Nothing that changes the store is offered unless it is allowed. A rewind, an undo or a deletion takes two calls: the
first says what would happen, and the second repeats the digest of that answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any

from ..client import arguments
from ..client.store import Store
from ..client.store_reading import StoreReading
from ..errors import Invalid
from .bound import BoundStore
from .table import EFFECTS
from .toolbox import Tool, Toolbox, ToolReply, checked, require_writable

__all__ = ["EFFECTS", "ToolReply", "Tool", "Toolbox", "bind"]


def bind(
    store: Store,
    allow: Iterable[str] = (),
    *,
    workspace: str | PathLike[str] | None = None,
    agent: str = "main",
    searched: StoreReading[Any] | None = None,
) -> Toolbox:
    """Return the tools for an open store and its scope.

    ``allow`` names what they may change besides reading: ``state``, ``checkpoint``, ``rewind``, ``delete``.
    ``workspace`` is the directory that ``@`` means, ``agent`` whose conversations are saved where none is named.
    Searches go through ``searched`` if it is given: the same store, opened in another way.
    """
    if not isinstance(store, Store):
        raise Invalid(f"tools are bound to a Store as takeback.open returns it, not to {type(store).__name__}")
    place = None if workspace is None else arguments.workspace(workspace)
    here = BoundStore(store, searched or store, place, arguments.name(agent, what="agent"))
    allowed = checked(allow)
    require_writable(here, allowed)
    return Toolbox(here, allowed)
