"""Streamed answers of Gemini: chunks are partial responses, and no SDK call puts them together.

A chunk has the next parts of the content; the last ones have the finish reason and the usage of the whole answer. Text
is joined where it was cut. A part with a signature stays as it came, since it must go back as it was signed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...errors import Invalid
from ..lenient import dicts, fields, word
from .form import either, recognise

_TEXT = frozenset({"text", "thought"})
_MARKS = ("candidates", "promptFeedback", "usageMetadata", "prompt_feedback", "usage_metadata")
_LAST = ("usageMetadata", "usage_metadata", "modelVersion", "model_version", "responseId", "response_id")
_NOTHING = frozenset[str]()


def is_chunk(value: Any) -> bool:
    """Whether a value is a response of Gemini's, whole or partial, or a content."""
    return isinstance(value, dict) and (any(mark in value for mark in _MARKS) or bool(recognise(value, _NOTHING)))


def has_ended(chunks: Iterable[dict[str, Any]]) -> bool:
    """Whether the chunks of an answer say why it ended."""
    return bool(_reasons(chunks))


def merged(chunks: Sequence[dict[str, Any]], written: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Put the chunks of an answer together as one response.

    If they are only the end of the answer, what was written (kinds and texts) and is not in them comes before them.
    """
    contents = [content for chunk in chunks if (content := _content(chunk))]
    parts = [part for content in contents for part in dicts(content.get("parts"))]
    if any(either(call, "partialArgs") or either(call, "willContinue") for call in _calls(parts)):
        raise Invalid(
            "the arguments of a function call came in pieces, which cannot be put together here; "
            "ask for whole function calls (stream_function_call_arguments=False)"
        )
    before = _before(parts, written)
    if len(chunks) == 1 and contents and not before:
        return chunks[0]
    if not parts and not before:
        raise Invalid(f"the answer has no content to store ({', '.join(_reasons(chunks)) or 'no reason is given'})")
    content = {"role": "model", "parts": _joined([*before, *parts])}
    about = {name: chunk[name] for chunk in chunks for name in _LAST if chunk.get(name) is not None}
    return {**about, "candidates": [{"content": content}]}


def _content(chunk: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a chunk: of the first candidate, where there are several."""
    if "parts" in chunk:
        return chunk
    first = next((each for each in dicts(chunk.get("candidates")) if not each.get("index")), {})
    return fields(first.get("content"))


def _calls(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [fields(call) for part in parts if (call := either(part, "functionCall")) is not None]


def _joined(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join text where it was cut."""
    found = list[dict[str, Any]]()
    for part in parts:
        last = found[-1] if found else {}
        if _is_text(part) and _is_text(last) and bool(part.get("thought")) == bool(last.get("thought")):
            found[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            found.append(part)
    return [part for part in found if not _is_text(part) or part["text"]] or found[:1]


def _is_text(part: dict[str, Any]) -> bool:
    """Whether a part is text or a thought, and unsigned."""
    return isinstance(part.get("text"), str) and part.keys() <= _TEXT


def _before(parts: Sequence[dict[str, Any]], written: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return as parts what was written before these came; nothing, if they are not the end of what was written."""
    for kind in ("text", "thinking"):
        if not "".join(text for each, text in written if each == kind).endswith(_said(parts, kind)):
            return []
    if not _calls(parts) and any(kind == "tool_input" for kind, _ in written):
        raise Invalid("the function calls are in earlier chunks of this stream; give finish all of them, in a list")
    left = {kind: len(_said(parts, kind)) for kind in ("text", "thinking")}
    found = list[dict[str, Any]]()
    for kind, text in reversed([each for each in written if each[0] in left]):
        cut = min(left[kind], len(text))
        left[kind] -= cut
        if rest := text[: len(text) - cut]:
            found.append({"text": rest, "thought": True} if kind == "thinking" else {"text": rest})
    return found[::-1]


def _said(parts: Iterable[dict[str, Any]], kind: str) -> str:
    thought = kind == "thinking"
    return "".join(word(part.get("text")) for part in parts if (part.get("thought") is True) == thought)


def _reasons(chunks: Iterable[dict[str, Any]]) -> list[str]:
    """Return why an answer ended or was refused, as its chunks say."""
    found = list[Any]()
    for chunk in chunks:
        found.append(either(fields(either(chunk, "promptFeedback")), "blockReason"))
        found += [either(each, "finishReason") for each in dicts(chunk.get("candidates"))]
    return [word(reason) for reason in found if word(reason)]
