"""The fields of chat messages, by their roles, with the reasoning that other servers of this form put beside them."""

from __future__ import annotations

from ..known import UNSENT, OneOf, Shape, shape
from .form import REASONING

_CACHE = shape("mode ttl")
_TEXT = shape("type text", prompt_cache_breakpoint=_CACHE)
_ONLY_TEXT = OneOf({"text": _TEXT}, others=True)
_SAID = shape("role name", content=_ONLY_TEXT)
_CALLS = OneOf(
    {
        "function": shape("id type", function=shape("name arguments", parsed_arguments=UNSENT)),
        "custom": shape("id type", custom=shape("name input")),
    }
)
_OF_USERS: dict[str, Shape] = {
    "text": _TEXT,
    "image_url": shape("type", prompt_cache_breakpoint=_CACHE, image_url=shape("url detail")),
    "input_audio": shape("type", prompt_cache_breakpoint=_CACHE, input_audio=shape("data format")),
    "file": shape("type", prompt_cache_breakpoint=_CACHE, file=shape("file_id file_data filename")),
}
USERS_PARTS = frozenset(_OF_USERS)
ROLES: dict[str, dict[str, Shape]] = {
    "developer": _SAID,
    "system": _SAID,
    "user": shape("role name", content=OneOf(_OF_USERS, others=True)),
    "assistant": shape(
        f"role name refusal audio annotations {' '.join(REASONING)}",
        content=OneOf({"text": _TEXT, "refusal": shape("type refusal", prompt_cache_breakpoint=_CACHE)}, others=True),
        function_call=shape("name arguments"),
        tool_calls=_CALLS,
        parsed=UNSENT,
    ),
    "tool": shape("role tool_call_id", content=_ONLY_TEXT),
    "function": shape("role content name"),
}
