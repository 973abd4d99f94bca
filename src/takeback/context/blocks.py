"""One block of any form as a part of the normal form.

The forms that tag their blocks with ``type`` use different words for different things, so one table reads them
all; that also reads messages whose writer mixed forms. Gemini's parts are told apart by their keys. Nothing here
raises on odd data: a block that is not understood is ``Opaque`` under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ..model.forms import gemini, openai_chat, openai_responses
from ..model.forms.given import dicts, fields, kind, word
from ..model.tools import ToolResult
from .normal import Call, Media, Opaque, Part, Result, Text, as_json

Read = Callable[[dict[str, Any], str | None], Part | None]
REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})


def blocks(content: Any, form: str | None) -> Iterator[Part]:
    """Read a text or a list of blocks; ids are given to calls that have none, by their place."""
    if isinstance(content, str):
        if content:
            yield Text(content)
        return
    count = 0
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            part = _block(block, form)
            if type(part) is Call:
                yield part if part.id else Call(f"call-{count}", part.name, part.arguments)
                count += 1
            elif part is not None:
                yield part
        elif isinstance(block, str) and block:
            yield Text(block)


def _block(block: dict[str, Any], form: str | None) -> Part | None:
    read = _READERS.get(kind(block))
    found = None if read is None else read(block, form)
    if found is None:
        return Opaque(named(kind(block)), form=form, raw=block if form else None)
    return found


def named(what: str) -> str:
    """Give a word for people for the type of a block."""
    return "thinking" if what in _THINKING else what.replace("_", " ") or "unknown part"


def _kept(form: str | None, block: dict[str, Any]) -> dict[str, Any]:
    return {"form": form, "raw": block if form else None}


def _text(block: dict[str, Any], form: str | None) -> Part:
    text = block.get("text")
    if type(text) is not str or not text:
        text = word(block.get("refusal"))
    return Text(text, form=form, raw=block if form else None)


def _tool_use(block: dict[str, Any], form: str | None) -> Part:
    raw = block if form else None
    return Call(word(block.get("id")), word(block.get("name")), block.get("input"), form=form, raw=raw)


def _tool_result(block: dict[str, Any], form: str | None) -> Part:
    failed = block.get("is_error") is True
    return result(word(block.get("tool_use_id")), block.get("content"), success=not failed, **_kept(form, block))


def result(
    call_id: str,
    content: Any,
    *,
    success: bool = True,
    name: str | None = None,
    form: str | None = None,
    raw: Any = None,
) -> Result:
    """Read a tool's result: text and blocks as parts, any other value as JSON text beside the value."""
    if isinstance(content, str) or content is None:
        parts: tuple[Part, ...] = (Text(content),) if content else ()
        return Result(call_id, parts, success, name, form=form, raw=raw)
    listed = [content] if isinstance(content, dict) else content
    if isinstance(listed, list) and listed and all(_is_block(each, form) for each in listed):
        return Result(call_id, tuple(blocks(listed, form)), success, name, form=form, raw=raw)
    return Result(call_id, (Text(as_json(content)),), success, name, content, form=form, raw=raw)


def _is_block(value: Any, form: str | None) -> bool:
    """Tell a block from data that a tool gave; a provider's own may be of a type that is new."""
    return isinstance(value, dict) and (kind(value) in _READERS or (form == "anthropic" and kind(value) != ""))


# ---------------------------------------------------------------------- media


def media(mime: str, *, data: str | None = None, url: str | None = None, name: str | None = None, **kept: Any) -> Media:
    """Make media of what a block says; a ``data:`` URL is data."""
    if url is not None and url.startswith("data:") and ";base64," in url:
        head, _, data = url.partition(";base64,")
        mime, url = head.removeprefix("data:").partition(";")[0] or mime, None
    group = mime.partition("/")[0]
    return Media(group if group in ("image", "audio", "video") else "document", mime, data, url, name, **kept)


def _sourced(block: dict[str, Any], form: str | None) -> Part | None:
    """Read an image or a document of Anthropic's."""
    source, name = fields(block.get("source")), word(block.get("title")) or None
    mime = word(source.get("media_type")) or ("image/*" if kind(block) == "image" else "application/pdf")
    if kind(source) == "text":
        return Text(word(source.get("data")), **_kept(form, block))
    if kind(source) == "base64" and word(source.get("data")):
        return media(mime, data=source["data"], name=name, **_kept(form, block))
    if kind(source) == "url" and word(source.get("url")):
        return media(mime, url=source["url"], name=name, **_kept(form, block))
    return None


def _image_url(block: dict[str, Any], form: str | None) -> Part | None:
    """Read an image of OpenAI's, of either API."""
    given = block.get("image_url")
    url = word(given) or word(fields(given).get("url"))
    return media("image/*", url=url, **_kept(form, block)) if url else None


def _audio(block: dict[str, Any], form: str | None) -> Part | None:
    sound = fields(block.get("input_audio"))
    if not word(sound.get("data")):
        return None
    return media(f"audio/{word(sound.get('format')) or 'wav'}", data=sound["data"], **_kept(form, block))


def _file(block: dict[str, Any], form: str | None) -> Part | None:
    """Read a file of OpenAI's, of either API; one that lies on their servers is opaque."""
    given = fields(block.get("file")) or block
    url, name = word(given.get("file_data")) or word(given.get("file_url")), word(given.get("filename")) or None
    return media("application/pdf", url=url, name=name, **_kept(form, block)) if url else None


_READERS: dict[str, Read] = {
    "text": _text,
    "input_text": _text,
    "output_text": _text,
    "refusal": _text,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "image": _sourced,
    "document": _sourced,
    "image_url": _image_url,
    "input_image": _image_url,
    "computer_screenshot": _image_url,
    "input_audio": _audio,
    "file": _file,
    "input_file": _file,
}


# ---------------------------------------------------------------------- whole messages, form by form


def of_anthropic(value: dict[str, Any]) -> Iterator[Part]:
    """Read a message of Anthropic's."""
    return blocks(value.get("content"), "anthropic")


def of_chat(value: dict[str, Any]) -> Iterator[Part]:
    """Read a chat message: content, what lies beside it, calls; or the result that it is."""
    form = "openai-chat"
    if value.get("role") in ("tool", "function"):
        name = word(value.get("name"))
        yield result(
            word(value.get("tool_call_id")) or name, value.get("content"), name=name or None, form=form, raw=value
        )
        return
    yield from _beside(value, form)
    yield from blocks(value.get("content"), form)
    for text in (value.get("refusal"), fields(value.get("audio")).get("transcript")):
        if word(text):
            yield Text(word(text))
    old = value.get("function_call")
    asked = [*dicts(value.get("tool_calls")), *([{"function_call": old}] if isinstance(old, dict) else [])]
    for call, raw in zip(openai_chat.calls(value), asked, strict=True):
        has_id = "function_call" in raw or word(raw.get("id"))
        yield Call(call.id, call.name, call.arguments, form=form, raw=raw if has_id else None)


def _beside(value: dict[str, Any], form: str) -> Iterator[Part]:
    """Read the reasoning that some providers put beside the content."""
    found = {key: value[key] for key in REASONING if value.get(key) is not None}
    if found:
        yield Opaque("thinking", form=form, raw=found)


def of_responses(value: dict[str, Any]) -> Iterator[Part]:
    """Read an item of the Responses API."""
    form, name = "openai-responses", kind(value)
    calls, results = openai_responses.calls(value), openai_responses.results(value)
    for call in calls:
        has_id = word(value.get("call_id"))
        yield Call(call.id, call.name, call.arguments, form=form, raw=value if has_id else None)
    for each in results:
        yield result(each.call_id, each.content, success=each.success, name=each.name, form=form, raw=value)
    if name in ("", "message"):
        yield from blocks(value.get("content"), form)
    elif not calls and not results:
        yield Opaque(named(name), form=form, raw=value)


def of_gemini(value: dict[str, Any]) -> Iterator[Part]:
    """Read a content of Gemini's."""
    parts = list(dicts(value.get("parts")))
    calls = iter(gemini.calls(value) if any(_has(part, "functionCall") for part in parts) else ())
    results = iter(gemini.results(value) if any(_has(part, "functionResponse") for part in parts) else ())
    for part in parts:
        kept: dict[str, Any] = {"form": "gemini", "raw": part}
        if isinstance(either(part, "functionCall"), dict):
            call = next(calls)
            yield Call(call.id, call.name, call.arguments, **kept)
        if isinstance(either(part, "functionResponse"), dict):
            yield _gemini_result(next(results), part)
        elif not isinstance(either(part, "functionCall"), dict) and part:
            yield _gemini_part(part, kept)


def _has(part: dict[str, Any], camel: str) -> bool:
    return isinstance(either(part, camel), dict)


def _gemini_part(part: dict[str, Any], kept: dict[str, Any]) -> Part:
    text, blob, file = part.get("text"), fields(either(part, "inlineData")), fields(either(part, "fileData"))
    if text == "" and not either(part, "thoughtSignature"):
        return Text("", **kept)
    if part.get("thought") is True:
        return Opaque("thinking", **kept)
    if blob:
        data = word(blob.get("data")).replace("-", "+").replace("_", "/")  # the SDK writes base64 as for URLs
        return media(word(either(blob, "mimeType")), data=data, **kept)
    if file:
        return media(word(either(file, "mimeType")), url=word(either(file, "fileUri")), **kept)
    if isinstance(text, str) and text:
        return Text(text, **kept)
    return Opaque(named(next(iter(part))), **kept)


def _gemini_result(given: ToolResult, part: dict[str, Any]) -> Part:
    """Read a function response; one of a single text says that text."""
    only = only_text(fields(given.content))
    content = given.content if only is None else only
    return result(given.call_id, content, success=given.success, name=given.name, form="gemini", raw=part)


def only_text(response: dict[str, Any]) -> str | None:
    """Give the text that a response of Gemini's is, if it is nothing else."""
    only = next(iter(response.values())) if len(response) == 1 and not _SAYS.isdisjoint(response) else None
    return only if isinstance(only, str) else None


_SAYS = frozenset({"output", "result", "error"})


def either(value: dict[str, Any], camel: str) -> Any:
    """Give a field of Gemini's in camelCase or in snake_case."""
    return value[camel] if camel in value else value.get(_snake(camel))


@cache
def _snake(camel: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)


READERS: dict[str, Callable[[dict[str, Any]], Iterator[Part]]] = {
    "anthropic": of_anthropic,
    "openai-chat": of_chat,
    "openai-responses": of_responses,
    "gemini": of_gemini,
}
