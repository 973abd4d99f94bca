"""Write docs/architecture.md: the rooms, as the import rules order them, and four flows, as they really run.

The rooms come from the layers in pyproject.toml and the first sentence of each package. The flows are traced: each
call runs once in a store on disk, and every step from one module into another is recorded. ``--check`` only compares.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import takeback
from _fresh import every_file_is_fresh
from takeback.client.session import Session
from takeback.testing.clock import ManualClock

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = Path(takeback.__file__).parent
# What every step uses is left out of the drawing: a page that shows it shows little else.
_EVERYWHERE = ("model", "codec", "ids", "clock", "errors", "presence", "mounts", "tables", "testing")
_ENGINE = "storage"

_HEAD = """# How Takeback is built

This page is written by `tools/gen_architecture.py`: the rooms from the import rules that `make check` enforces, the
flows from a trace of real calls. If it looks wrong, the code is.

## The rooms

A room imports only what stands below it. Rooms in one row know nothing of each other, unless they are joined by `+`.

"""

_LOADING = """
## How modules are loaded

A module of ours runs when somebody first takes a name from it (`takeback.lazy`). `from ..ops import sessions` only
binds the module, so a process runs those that it uses: listing sessions from the shell runs about 60, opening a store
and appending a message about 80, of nearly 400. `from ..ops.sessions import get` runs the module at once. Names that
only annotations use are imported under `TYPE_CHECKING`. [0025](adr/0025-modules-on-first-use.md) says why.
"""
_FLOWS = """
## Four flows

Each call below ran once in a store on disk. A line is a module, behind it the function through which it was entered
first; what is indented was called from the line above. A module is shown where the flow enters it first. The engine
below `storage.runner`, the table descriptors and plain values (`model`, `codec`, `ids`, ...) are left out.
"""


# ---------------------------------------------------------------------- the rooms


def rooms() -> list[str]:
    """Draw the layers, the highest first, each room with what it is for."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = next(each for each in settings["contracts"] if each["type"] == "layers")["layers"]
    lines = ["| room | what it is for |", "|---|---|"]
    for layer in layers:
        joined = ":" in layer
        names = [name.strip() for name in layer.replace(":", "|").split("|")]
        shown = (" + " if joined else " \\| ").join(f"`{name.removeprefix('takeback.')}`" for name in names)
        lines.append(f"| {shown} | {'<br>'.join(map(_purpose, names))} |")
    return lines


def _purpose(module: str) -> str:
    """Return the first sentence of a module's docstring."""
    path = SOURCE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = file.read_text("utf-8").split('"""')[1].split("\n\n")[0]
    sentence = " ".join(text.split()).split(". ")[0].rstrip(".")
    return sentence.replace("|", "\\|")


# ---------------------------------------------------------------------- the flows


class Step(NamedTuple):
    """A module that a flow enters for the first time, by which function, and below how many others."""

    module: str
    function: str
    depth: int


def traced(call: Callable[[], object]) -> list[Step]:
    """Run a call and record where it enters each module first."""
    found = dict[str, Step]()
    stack = [""]

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            module = _module(frame.f_code.co_filename) or stack[-1]
            if module not in found and module:
                found[module] = Step(module, frame.f_code.co_name, len({*stack} - {""}))
            stack.append(module)
        elif event == "return" and len(stack) > 1:
            stack.pop()

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [*found.values()]


def _module(filename: str) -> str | None:
    """Return the module of a file of ours that the drawing shows."""
    path = Path(filename)
    if not path.is_relative_to(SOURCE):
        return None
    parts = path.relative_to(SOURCE).with_suffix("").parts
    if parts[0] in _EVERYWHERE or (parts[0] == _ENGINE and parts[-1] != "runner"):
        return None
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def flows() -> list[str]:
    """Run each flow once to load what is loaded on first use, and once more to trace it."""
    lines = list[str]()
    with tempfile.TemporaryDirectory() as folder, every_file_is_fresh():
        work = Path(folder, "work")
        work.mkdir()
        with takeback.open(Path(folder, "store.db"), clock=ManualClock()) as store:
            told: list[tuple[str, str, Callable[[], object]]] = [
                ("Append", 'session.user("hello")', _append(store.create_session())),
                ("Messages", "session.messages(limit=50)", _messages(store.create_session())),
                ("Rewind", "session.preview_rewind(1).apply()", _rewind(store.session(workspace=work), work)),
                ("Context", 'session.context("anthropic")', _context(store.create_session())),
            ]
            for title, shown, call in told:
                call()
                steps = traced(call)
                drawn = [f"{'  ' * each.depth + each.module:36} {each.function}" for each in steps]
                lines += [f"\n### {title}: `{shown}`\n", f"{len(steps)} modules.\n", "```", *drawn, "```"]
    return lines


def _append(session: Session) -> Callable[[], object]:
    return lambda: session.user("hello")


def _messages(session: Session) -> Callable[[], object]:
    _talk(session)
    return lambda: session.messages(limit=50)


def _context(session: Session) -> Callable[[], object]:
    _talk(session)
    return lambda: session.context("anthropic")


def _rewind(session: Session, work: Path) -> Callable[[], object]:
    def change_and_return() -> object:
        return session.preview_rewind(1).apply()

    def with_a_change() -> object:
        profile = sys.getprofile()
        sys.setprofile(None)  # only the rewind is drawn
        session.user("Write it")
        with session.tool("write", {"path": "a.txt"}) as run:
            work.joinpath("a.txt").write_text(f"{session.head.seq}\n")
            run.result("done")
        sys.setprofile(profile)
        return change_and_return()

    session.user("Begin")
    return with_a_change


def _talk(session: Session) -> None:
    for turn in range(3):
        session.append({"role": "user", "content": f"Question {turn}"}, {"role": "assistant", "content": "Answer"})


def main() -> int:
    """Write the page, or compare it."""
    page = _HEAD + "\n".join(rooms()) + "\n" + _LOADING + _FLOWS + "\n".join(flows()) + "\n"
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != page)
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
