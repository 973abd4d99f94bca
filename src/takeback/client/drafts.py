"""Drafts of entries from what callers append: our own messages, dicts, SDK objects, native and custom items.

Whatever can be refused is refused here, before anything is stored. A message may be in our form or a provider's: then
its own JSON is kept verbatim next to a small normalised form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from .. import providers as forms
from ..errors import Invalid
from ..model import items as items_
from ..model import message as messages_
from ..model.entry import Draft
from ..model.message import Message
from ..model.usage import Usage
from . import arguments, attachments

if TYPE_CHECKING:
    from ..model.items import Native
    from .store import Store

_KNOWN = frozenset(messages_.Body.__struct_fields__) - {"pointer", "content_at"}
_OURS: dict[str, Any] = {"metadata": Mapping, "origin": str, "created_at": datetime}


class Said(dict[str, Any]):
    """A message as ``user``, ``assistant`` and ``system`` take it: content, and our own fields."""


def drafts(store: Store, items: Iterable[Any], *, named: bool = False) -> list[Draft]:
    """Turn what a caller appends into drafts, and store its attachments.

    With ``named``, the ``id`` of a dict in a provider's form is the id of its entry as well.
    """
    found = list[Draft]()
    for item in items:
        kind = type(item)
        if (kind is dict or kind is Said) and len(item) == 2 and type(item.get("content")) is str and _is_ours(item):
            found.append(messages_.text_draft(item))
        elif kind is dict:
            found += _recognised(store, item, named=named)
        elif kind is Said:
            found.append(_said_draft(store, item))
        elif isinstance(item, list | tuple | str | bytes):
            raise Invalid(f"append takes messages as arguments, not one {type(item).__name__}: append(*messages)")
        elif isinstance(item, Message):
            found.append(_copied(store, item))
        elif isinstance(item, items_.Custom):
            found.append(items_.custom_draft(item, _at_ms(item.created_at)))
        elif isinstance(item, items_.Native):
            found.append(_native(item))
        else:
            found += _recognised(store, item)
    return found


def _is_ours(item: dict[str, Any]) -> bool:
    """Whether a role and a text are nobody's own: a developer's message is OpenAI's, and has to stay one."""
    return "role" in item and item["role"] != "developer"


def _at_ms(created_at: object) -> int | None:
    return None if created_at is None else arguments.time_ms(created_at)


def _native(item: Native) -> Draft:
    if item.text is not None:
        arguments.text(item.text, what="text")
    if item.metadata is not None:
        arguments.mapping(item.metadata, what="metadata")
    for name in ("calls", "results"):
        arguments.many(getattr(item, name), what=name)
    if item.pointer is not None and arguments.text(item.pointer, what="pointer") and item.pointer[0] != "/":
        raise Invalid(f"a JSON pointer begins with a slash, as in '/message', not {item.pointer!r:.60}")
    if item.form is None and item.pointer is not None:
        raise Invalid("pointer= leads to a provider's object; say which provider's with form=")
    given = None
    if item.form is not None:
        if item.form not in forms.NAMES:
            raise Invalid(f"there is no form {item.form!r}; the forms are {', '.join(sorted(forms.NAMES))}")
        given = forms.given_as(item.form, item.role, items_.inside(item))
    return items_.native_draft(item, given, _at_ms(item.created_at))


def _recognised(store: Store, item: Any, *, named: bool = False) -> list[Draft]:
    """Turn a message in any form into drafts; metadata, origin and a datetime are ours, as no provider has them."""
    bare, ours = item, dict[str, Any]()
    if isinstance(item, dict) and "role" in item:
        ours = {name: item[name] for name, kind in _OURS.items() if isinstance(item.get(name), kind)}
        if ours:
            bare = {key: value for key, value in item.items() if key not in ours}
    at_ms = _at_ms(ours.pop("created_at", None))
    given = forms.recognise(bare)
    if named and len(given) == 1 and isinstance(item, dict) and isinstance(item.get("id"), str):
        ours["id"] = item["id"]
    found = [messages_.given_draft(each, ours) for each in given]
    return [each._replace(at_ms=at_ms) for each in found] if found else [_draft(store, item)]


def _said_draft(store: Store, said: dict[str, Any]) -> Draft:
    """Turn a message of ours into a draft; parts in a provider's form stay as they are, next to our fields."""
    given = [] if isinstance(said["content"], str) else forms.recognise({k: said[k] for k in ("role", "content")})
    if not given or said.get("raw") is not None:  # a caller's own raw bytes need not contain the content
        return _draft(store, said)
    body = {key: value for key, value in said.items() if value is not None and key != "content"}
    at_ms = _at_ms(body.pop("created_at", None))
    body["role"] = given[0].role
    usage = _tidy(store, body) if len(body) > 1 else None
    body["form"] = given[0].form
    found = messages_.draft(body, raw=messages_.encode_raw(given[0].value), usage=usage, given=given[0])
    return found._replace(at_ms=at_ms)


def _draft(store: Store, item: Any) -> Draft:
    """Turn a message as callers write it into a draft; unknown fields go into ``extra``."""
    if not isinstance(item, Mapping):
        item = forms.plain(item)
        if not isinstance(item, Mapping):
            raise Invalid(
                f"a message must be a dict with role and content, or an SDK object, not {type(item).__name__}"
            )
    body = {key: value for key, value in item.items() if value is not None or key == "content" or key not in _KNOWN}
    raw, is_ours = body.pop("raw", None), type(item) is Said or isinstance(body.get("created_at"), datetime)
    at_ms = _at_ms(body.pop("created_at", None)) if is_ours else None
    body.setdefault("content", "")
    usage = _tidy(store, body) if len(body) > 2 else None
    return messages_.draft(body, raw=raw, usage=usage)._replace(at_ms=at_ms)


def _copied(store: Store, message: Message) -> Draft:
    """Copy a message of any session into a draft; it gets a new id, and its attachments come along."""
    if message.data is None:
        raise Invalid("the content of this message was erased; there is nothing to append")
    left = ("id", "parent_id", "tool_name", "answers", "attachments", "content_at")
    said = msgspec.to_builtins(message.body, builtin_types=(bytes,))
    body = {key: value for key, value in said.items() if key not in left}
    if message.body.attachments:
        body["attachments"] = [attachments.store(store, each) for each in message.attachments]
    if message.body.form is None:
        body["content"] = message.content
        return messages_.draft(body, raw=message.raw, usage=message.usage)
    calls, results = message.tool_calls, message.tool_results
    is_turn = message.role == "user"
    given = forms.Given(message.body.form, message.role, {}, calls=calls, results=results, is_turn=is_turn)
    return messages_.draft(body, raw=message.raw, usage=message.usage, given=given)


def _tidy(store: Store, body: dict[str, Any]) -> Usage | None:
    """Convert the rarer fields into their stored form and return the usage."""
    usage = None
    if "usage" in body:
        usage = Usage.of(body["usage"])
        body["usage"] = msgspec.to_builtins(usage)
    for name in ("metadata", "extra"):
        if name in body:
            if not isinstance(body[name], Mapping):
                raise Invalid(f"{name} must be a dict, not {type(body[name]).__name__}")
            body[name] = dict(body[name])
    if "attachments" in body:
        wanted = arguments.many(body.pop("attachments"), what="attachments")
        stored = [attachments.store(store, given) for given in wanted]
        body.update({"attachments": stored} if stored else {})
    messages_.tool_parts(body)
    for derived in ("form", "answers"):
        body.pop(derived, None)
    if not body.keys() <= _KNOWN:
        unknown = {key: body.pop(key) for key in [*body] if key not in _KNOWN}
        body["extra"] = {**body.get("extra", {}), **unknown}
    return usage


def parts(content: Any) -> list[Any]:
    """Check content that is not text: a list of parts, or one part."""
    if isinstance(content, Mapping):
        return [forms.plain(content)]
    if isinstance(content, list | tuple):
        return [forms.plain(part) for part in content]
    raise Invalid(
        f"content must be text or a list of parts, not {type(content).__name__}; append takes a whole SDK message"
    )


def attaches(item: Any) -> bool:
    """Whether an item has attachments, which are stored before it."""
    if isinstance(item, Message):
        return bool(item.body.attachments)
    return (type(item) is dict or isinstance(item, Mapping)) and bool(item.get("attachments"))
