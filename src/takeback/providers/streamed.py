"""What a stream ends with, as one message.

The SDKs of Anthropic and OpenAI put the final message together. The one of Gemini leaves that to its caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import Invalid
from . import plain, recognise
from .gemini import chunks

_TAKES = (
    "finish takes the final message as the SDK returns it: stream.get_final_message() of Anthropic's, "
    "event.response of OpenAI's response.completed, or the list of all chunks of a Gemini stream"
)
_CUT_OFF = "the stream was cut off before its answer was complete: the final message does not say why it ended"
_RUNNING = ("in_progress", "queued")


def final(message: object, written: Sequence[tuple[str, str]]) -> Any:
    """Return the final message of a stream; chunks are merged, with what was written (kinds and texts) before them.

    Raises ``Invalid`` for what is not a message, and for one that was cut off.
    """
    if isinstance(message, msgspec.Struct):  # one of our own values, which append knows
        return message
    values = [plain(each) for each in message] if isinstance(message, list | tuple) else [plain(message)]
    if values and all(map(chunks.is_chunk, values)):
        if isinstance(message, list | tuple) and not chunks.has_ended(values):
            raise Invalid(_CUT_OFF)
        return chunks.merged(values, written)
    value = values[0] if values and not isinstance(message, list | tuple) else None
    if isinstance(value, dict) and _is_partial(value):
        raise Invalid(_CUT_OFF)
    if not isinstance(value, dict) or _is_piece(value) or not (recognise(value) or isinstance(value.get("role"), str)):
        empty = isinstance(value, dict) and value.get("output") == []
        raise Invalid("the response has no output to store" if empty else f"{_TAKES}; not {_named(message)}")
    return message


def _is_partial(value: dict[str, Any]) -> bool:
    """Whether a message is what its SDK had put together when the stream was cut off."""
    if value.get("type") == "message" and "stop_reason" in value:
        return value["stop_reason"] is None
    return value.get("object") == "response" and value.get("status") in _RUNNING


def _is_piece(value: dict[str, Any]) -> bool:
    """Whether a value is one event or chunk of a stream."""
    kind, thing = value.get("type"), value.get("object")
    is_event = isinstance(kind, str) and kind.startswith(("response.", "message_", "content_block_"))
    return is_event or (isinstance(thing, str) and thing.endswith(".chunk"))


def _named(message: object) -> str:
    if isinstance(message, list | tuple):
        return f"a list of {', '.join(sorted({type(each).__name__ for each in message})) or 'nothing'}"
    return type(message).__name__
