"""What every context must be: taken by its provider's validator, the same at a second look, and plain JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from takeback import Invalid, Session
from takeback import providers as forms
from takeback.context.value import Context
from takeback.model.message import Message, encode_raw
from takeback.providers import NAMES
from takeback.providers.lenient import normal_role
from takeback.testing import validators

ALL = tuple(sorted(NAMES))
# A finished answer may end a context: the caller adds the next user message to the session before it asks again.
_FINISHED = ("wants a conversation that ends with the user", "wants contents that end with the user")


def context_of(session: Session, provider: str, **options: Any) -> Context:
    """Return a context that is valid, the same at a second look, and nothing that a store could not hold."""
    found, again = session.context(provider, **options), session.context(provider, **options)
    require_valid(found)
    assert as_sent(again) == as_sent(found)
    if asks(found):
        assert dumped(again.request()) == dumped(found.request())
    return found


def as_sent(context: Context) -> bytes:
    """Write what a context sends, whether there is anything to ask or not."""
    return dumped([context.provider, context.model, context.system, context.messages])


def asks(context: Context) -> bool:
    """Return whether there is anything to send: instructions alone are not."""
    return any(message.get("role") != "developer" for message in context.messages)


def dumped(value: Any) -> bytes:
    """Write JSON as a client would, with base64 for bytes; what JSON or UTF-8 cannot hold fails."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_spelled).encode()


def _spelled(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} is no JSON")
    return base64.b64encode(value).decode()


def require_valid(context: Context, *, sdk: bool = True, finished: bool = True) -> None:
    """Check a context by its provider's rules and types; where nothing is asked there is no request to check.

    Unless ``finished``, the conversation must end so that every model answers it.
    """
    if not asks(context):
        with pytest.raises(Invalid, match="nothing to send"):
            context.request()
        return
    request = context.request()
    dumped(request)
    found = validators.problems(context.provider, request, sdk=sdk)
    left = [each for each in found if not (finished and each.endswith(_FINISHED))]
    assert not left, f"{context.provider} would refuse this request:\n" + "\n".join(left)


def kept(seq: int, item: dict[str, Any], form: str) -> Message:
    """Make a stored message of what was sent, in the form that it was sent in."""
    role = normal_role(item.get("role", "assistant"))
    parts = [part for part in item.get("parts", item.get("content")) or () if isinstance(part, dict)]
    if forms.find_form(form).results(item) and len(forms.find_form(form).results(item)) >= len(parts):
        role = "tool"
    return Message("b", seq, 0, 0, msgspec.json.encode({"role": role, "form": form}), encode_raw(item))
