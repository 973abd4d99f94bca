"""What a coding agent says: about 500 bytes of JSON a message, made from the standard library's sources.

Six messages make a turn: a user's request, then assistant and tool messages in alternation, a plain answer
last. Assistant messages carry what providers send with them: an id, the model, token counts. The same seed gives
the same messages on the same Python, without a network.
"""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

SIZE = 500
Message = dict[str, Any]

_POOL = 600
_FILES = 80
_TOOLS = ("read_file", "edit_file", "shell", "search")
_ROLES = ("user", "assistant", "tool", "assistant", "tool", "answer")


class Corpus(NamedTuple):
    """Text to draw from: sources with their names, and sentences of their docstrings."""

    sources: list[tuple[str, str]]
    sentences: list[str]


@lru_cache(maxsize=1)
def corpus() -> Corpus:
    """Read some modules of the standard library."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:_FILES]
    sources = [(path.name, text) for path in paths if len(text := path.read_text("utf-8", "ignore")) > 4 * SIZE]
    prose = " ".join(found for _, text in sources for found in re.findall(r'"""(.{60,}?)"""', text, re.DOTALL))
    sentences = [part for part in re.split(r"(?<=[.!?]) ", re.sub(r"\s+", " ", prose)) if 25 < len(part) < 300]
    return Corpus(sources, sentences)


def stream(seed: int) -> Iterator[Message]:
    """Return messages without end: bodies repeat after a while, ids never do."""
    pool = _pool(seed)
    ids = random.Random(seed * 7919 + 1)
    while True:
        for message in pool:
            yield {**message, "id": _id("msg", ids)} if "id" in message else message


def take(count: int, seed: int) -> list[Message]:
    """Return the first ``count`` messages of a stream."""
    source = stream(seed)
    return [next(source) for _ in range(count)]


def texts(count: int, seed: int) -> list[str]:
    """Return texts of user messages, each as long as makes ``{"role": "user", "content": text}`` the usual size."""
    rng, frame = random.Random(seed * 7919 + 2), len(orjson.dumps({"role": "user", "content": ""}))
    return [_prose(rng)[: SIZE - frame] for _ in range(count)]


@lru_cache(maxsize=4)
def _pool(seed: int) -> tuple[Message, ...]:
    rng = random.Random(seed)
    call = _id("call", rng)
    made = []
    for number in range(_POOL):
        role = _ROLES[number % len(_ROLES)]
        if role == "assistant":
            call = _id("call", rng)
        made.append(_fitted(role, call, rng))
    return tuple(made)


def _fitted(role: str, call: str, rng: random.Random) -> Message:
    """Make a message and cut its longest text until its JSON has the wanted size."""
    text = _code(rng) if role == "tool" else _prose(rng)
    state, length = rng.getstate(), len(text)
    for _ in range(4):
        rng.setstate(state)
        message = _message(role, call, text[:length], rng)
        excess = len(orjson.dumps(message)) - SIZE
        if excess == 0:
            break
        length = max(1, length - excess)
    return message


def _message(role: str, call: str, text: str, rng: random.Random) -> Message:
    if role == "user":
        return {"role": "user", "content": [{"type": "text", "text": text}]}
    if role == "tool":
        return {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]}
    parts: list[Message] = [{"type": "text", "text": text}]
    if role == "assistant":
        name, source = rng.choice(corpus().sources)
        line = rng.randrange(len(source) - 100)
        given = {"path": f"src/{name}", "text": source[line : line + 80]}
        parts.append({"type": "tool_use", "id": call, "name": rng.choice(_TOOLS), "input": given})
    usage = {"input_tokens": rng.randrange(1, 200_000), "output_tokens": rng.randrange(1, 3000)}
    return {"role": "assistant", "content": parts, "id": _id("msg", rng), "model": "some-model-1", "usage": usage}


def _prose(rng: random.Random) -> str:
    found = ""
    while len(found) < SIZE:
        found += rng.choice(corpus().sentences) + " "
    return found


def _code(rng: random.Random) -> str:
    _, source = rng.choice(corpus().sources)
    start = source.index("\n", rng.randrange(len(source) - 3 * SIZE)) + 1
    return source[start : start + 2 * SIZE]


def _id(prefix: str, rng: random.Random) -> str:
    return f"{prefix}_{rng.getrandbits(96):024x}"
