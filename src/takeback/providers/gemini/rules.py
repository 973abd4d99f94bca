"""Gemini: contents of user and model take turns; a content of calls is followed by one with all their responses.

Calls and responses may have no ids and then go by their order; a response has an id exactly if its call has one.
Gemini 3 wants the first call of a content signed: one that Gemini never made gets the sentence that its documentation
gives for conversations from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..lenient import fields, word
from ..normal import Call, Item, Media, Notes, Opaque, Part, Result, is_base64, is_there, verbatim, with_parts
from ..rules import Rules
from .form import FORM, either

UNSIGNED = "skip_thought_signature_validator"
_OLD = re.compile(r"(.*/)?gemini-[12]\b")
_TYPES = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/[\w.+-]+|application/(pdf|json|rtf|x-javascript|x-python)"
)
_OWN_URLS = ("gs://", "https://generativelanguage.googleapis.com/")
_OF_MODEL = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_SIGNATURES = ("thoughtSignature", "thought_signature")


def takes(part: Media, role: str) -> bool:
    """Return whether media can be sent: as data or from Google's storage; what came as a part may be the model's."""
    is_own = verbatim(part, FORM) is not None
    if part.data is None:
        url = part.url or ""
        return bool(url) and (is_own or (role == "user" and url.startswith(_OWN_URLS)))
    return _TYPES.fullmatch(part.mime) is not None and is_there(part) and (role == "user" or is_own)


def holds(part: Part, role: str) -> bool:
    """Return whether a part may stand in a content of a role: what code did is the model's."""
    return role == "assistant" or all(either(part.raw, name) is None for name in _OF_MODEL)


def forgets(item: Item) -> Item:
    """Leave out thoughts and signatures."""
    kept = (part for part in item.parts if not (isinstance(part, Opaque) and part.what == "thinking"))
    return with_parts(item, tuple(part for each in kept if (part := _unsigned(each)) is not None))


def _unsigned(part: Part) -> Part | None:
    """Return a part without its signature; one that says nothing else is left out."""
    if verbatim(part, FORM) is None or not either(part.raw, "thoughtSignature"):
        return part
    raw = {key: value for key, value in part.raw.items() if key not in _SIGNATURES}
    return replace(part, raw=raw) if raw and raw != {"text": ""} else None


def tidy(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Take away signatures that are no base64."""
    found = list[Item]()
    for item in items:
        parts = (part if _is_readable(part) else _unsigned(part) for part in item.parts)
        kept = with_parts(item, tuple(part for part in parts if part is not None))
        if kept is not item:
            notes.add("left out a signature that is no base64", item.seq)
        if kept.parts:
            found.append(kept)
    return found


def suits(items: Sequence[Item], model: str, notes: Notes) -> list[Item]:
    """Sign calls for a model that wants that; without one they may go back to where nothing is signed."""
    return [_signed(item, notes) for item in items] if signs(model) else list(items)


def signs(model: str) -> bool:
    """Return whether a model wants its calls signed."""
    return _OLD.match(model) is None


def _signed(item: Item, notes: Notes) -> Item:
    """Sign the first call of a content that came without a signature."""
    place = next((place for place, part in enumerate(item.parts) if isinstance(part, Call)), None)
    raw = None if place is None else verbatim(item.parts[place], FORM)
    if place is None or raw is None or either(raw, "thoughtSignature"):
        return item
    notes.add("signed a call that came without a signature", item.seq)
    signed = replace(item.parts[place], raw={**raw, "thoughtSignature": UNSIGNED})
    return with_parts(item, (*item.parts[:place], signed, *item.parts[place + 1 :]))


def _is_readable(part: Part) -> bool:
    signature = either(part.raw, "thoughtSignature") if verbatim(part, FORM) is not None else None
    return not signature or is_signature(signature)


def is_signature(signature: Any) -> bool:
    """Return whether a signature is base64, of either alphabet."""
    return isinstance(signature, str) and is_base64(signature.replace("-", "+").replace("_", "/"))


def agrees(result: Result) -> bool:
    """Return whether a stored response fits its call: the same name, and an id exactly if that has one."""
    answer = fields(either(result.raw, "functionResponse"))
    return (
        result.to is not None
        and answer.get("name") == result.to.name
        and (word(answer.get("id")) or None) == sent_id(result.to)
    )


def sent_id(call: Call) -> str | None:
    """Return the id that a call is sent with, if it has one."""
    raw = verbatim(call, FORM)
    return (call.id if raw is None else word(fields(either(raw, "functionCall")).get("id"))) or None


RULES = Rules(
    form=FORM,
    takes=takes,
    holds=holds,
    forgets=forgets,
    alternates=True,
    ordered=True,
    sent_id=sent_id,
    id=re.compile(r".*", re.DOTALL),
    most=1000,
    name=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"),
    agrees=agrees,
    tidy=tidy,
    suits=suits,
    signs=signs,
    prices="google",
)
