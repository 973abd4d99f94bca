"""The plan of a rewind, undo, redo or switch, shown first: what goes, which files change, what stays and why.

All four share one layout, one document and one question. It reads nothing but the public preview.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import Any

from ..client.rewind import Rewind
from ..client.session import Session
from ..model import words
from ..model.operation import Operation
from ..shell import documents, times
from .consent import agreed, tell
from .frame import Frame
from .output import block, line

_SHOWN = 20
_COUNTED = 200  # at most this many paths get line counts: nobody reads more
_WALKED = 10_000  # at most this many files of an ignored directory are counted
_MARKS = {"create": "A", "overwrite": "M", "delete": "D", "mkdir": "A", "rmdir": "D", "chmod": "m", "link": "L"}
_STYLES = {"A": "green", "D": "red", "M": "yellow"}
_PATH = re.compile(r"^(?:--- a/|\+\+\+ b/)(.*?)\t?$")
_ALSO = ("back", "work", "sub-agents")  # lines of str(preview) that the preview has no fields for


class Plan:
    """A preview, and how the command line shows and applies it."""

    def __init__(self, frame: Frame, session: Session | None, rewind: Rewind, word: str) -> None:
        self._frame, self._session, self._rewind, self._word = frame, session, rewind, word
        self._lines = _counted(rewind.diff()) if 0 < len(rewind.files) <= _COUNTED else {}

    def carry_out(self, *, conversation: bool = True, take_over: bool = False) -> None:
        """Show the plan, ask, apply it, and say how to undo it."""
        frame, rewind = self._frame, self._rewind
        if frame.out.for_people:
            frame.out.text(self.drawing(conversation))
        if rewind.is_empty:
            self._give(None)
            return
        if not agreed(frame.settings, "Apply?", diff=self._show_diff):
            self._give(None)
            return
        began = time.monotonic()
        with frame.progress(self._word, "restoring files"):
            done = rewind.apply(take_over=take_over)
        if self._session is not None and self._session.recovered is not None:
            tell(line(self._session.recovered))
        if frame.out.for_people:
            back = "undo" if self._word != "Undo" else "redo"
            past = {"Rewind": "Rewound", "Undo": "Undone", "Redo": "Redone", "Switch": "Switched"}[self._word]
            tell(f"{past} in {time.monotonic() - began:.2f} s. Take it back with: takeback {back}")
        self._give(done)

    def _give(self, done: Operation | None) -> None:
        if not self._frame.out.for_people and (done is not None or not self._frame.settings.quiet):
            self._frame.out.one("rewind", self.document(done), lambda: ())

    def _show_diff(self) -> None:
        self._frame.out.text(colored(self._frame, self._rewind.diff()), long=True)

    # ------------------------------------------------------------------ for people

    def drawing(self, conversation: bool) -> Iterator[str]:
        """Yield the lines of the plan."""
        rewind = self._rewind
        yield self._headline(conversation)
        if rewind.workspace is not None:
            yield f"  in            {line(rewind.workspace)}"
        if rewind.is_empty:
            yield "  nothing would change"
        if rewind.pending is not None:
            mark = self._frame.out.paint("!", "yellow")
            yield f"  pending       {mark} {line(rewind.pending)}: that is undone first"
        if rewind.messages and self._session is not None:
            prompt = "" if rewind.prompt is None else line(" ".join(rewind.prompt.split()))[:60]
            gone = words.count(rewind.turns, "turn") if rewind.turns else words.count(rewind.messages, "message")
            first = f' (from "{prompt}" on)' if prompt else ""
            branch = line(documents.head_branch(self._session))
            yield f"  conversation  removes {gone}{first}; still on branch {branch}"
        yield from (each for each in str(rewind).splitlines() if each.strip().startswith(_ALSO))
        yield from self._files()
        yield from self._left_alone()

    def _headline(self, conversation: bool) -> str:
        session, then = self._session, self._rewind.stats.turns
        if session is None:  # the files of a directory alone
            found = f"files to how they were found at {times.both(self._rewind.target_at, utc=self._frame.out.utc)}"
            return f"{self._word} {found}{', whoever changed them since' if self._word == 'Rewind' else ''}"
        title = line(session.title or session.name or "untitled")
        name = f'{self._frame.out.paint(self._frame.short(session.id), "cyan")} "{title}"'
        now = session.turn_count
        if not conversation:
            where = f"(files only) to the end of turn {then}"
        elif now != then:
            where = f"from turn {now} to {f'the end of turn {then}' if then else 'before turn 1'}"
        else:
            where = f"within turn {now}"
        when = f", {times.ago(self._rewind.target_at)}" if self._word == "Rewind" else ""
        return f"{self._word} {name} {where}{when}"

    def _files(self) -> Iterator[str]:
        files = self._rewind.files
        for number, each in enumerate(files[:_SHOWN]):
            mark = _MARKS[each.action]
            end = "/" if each.action in ("mkdir", "rmdir") else ""
            added, removed = self._lines.get(each.path, (0, 0))
            lines = f" +{added} -{removed}" if added or removed else ""
            by = f"   ({line(each.about).replace('changed', _DONE[mark], 1)})" if each.about else ""
            painted = self._frame.out.paint(mark, _STYLES.get(mark, ""))
            yield f"  {'files' if number == 0 else '':13} {painted} {line(each.path)}{end}{lines}{by}"
        if len(files) > _SHOWN:
            yield f"  {'':13} ... and {len(files) - _SHOWN:,} more; [d]iff or --json shows all"

    def _left_alone(self) -> Iterator[str]:
        """Yield what does not change, as the library says it, with the flags of this command."""
        flags = ("--overwrite {quoted}", "--with {session}") if self._word == "Rewind" else ("", "")
        mark = self._frame.out.paint("!", "yellow")
        for each in self._rewind.left_alone(*flags, "; --json shows all"):
            kind, path = each[:16], each[16:]
            if kind.strip() == "not captured":
                missed, _, rest = path.partition(";")
                path = f"{_with_count(self._rewind.workspace or '', missed)};{rest}"
            yield f"{kind}{line(path)}".replace("! ", f"{mark} ", 1)

    # ------------------------------------------------------------------ for programs

    def document(self, done: Operation | None) -> dict[str, Any]:
        """Describe the plan, and the operation if it was applied."""
        rewind = self._rewind
        return {
            "id": None if done is None else done.id,
            "session_id": None if self._session is None else self._session.id,
            "applied": done is not None,
            "empty": rewind.is_empty,
            "from_seq": rewind.from_seq,
            "to_seq": rewind.to_seq,
            "to_at": times.rfc3339(rewind.target_at),
            "to_turn": rewind.stats.turns,
            "turns": rewind.turns,
            "messages": rewind.messages,
            "prompt": rewind.prompt,
            "pending": rewind.pending,
            "files": [self._file(each.path, each.action, each.by) for each in rewind.files],
            "kept": [*rewind.kept],
            "others": [*rewind.others],
            "other_sessions": rewind.other_sessions,
            "unclear": rewind.unclear,
            "stays": rewind.stays,
            "moved": rewind.moved,
            "workspace": rewind.workspace,
            "digest": rewind.digest,
            "not_captured": [*rewind.not_captured],
            "not_written": [*rewind.not_written],
            "operation": None if done is None else documents.operation(done),
        }

    def _file(self, path: str, action: str, by: str) -> dict[str, Any]:
        added, removed = self._lines.get(path, (0, 0))
        return {"path": path, "action": action, "by": by, "added": added, "removed": removed}


def carry_out(frame: Frame, session: Session | None, plan: Rewind, word: str) -> None:
    """Apply a plan; without asking if it touches no files, because then nothing can be lost."""
    if not (plan.files or plan.kept or frame.settings.dry_run):
        frame.settings.yes = True
    Plan(frame, session, plan, word).carry_out()


# What the agent did is the inverse of what the plan does: a file that the plan creates was deleted.
_DONE = {"A": "deleted", "D": "created", "M": "changed", "m": "changed", "L": "changed"}


def _with_count(workspace: str, missed: str) -> str:
    """Append to an ignored directory how many files it holds."""
    path = missed.removesuffix(" (ignored)")
    if path == missed or not path.endswith("/"):
        return missed
    files = (len(names) for _, _, names in os.walk(os.path.join(workspace, path)))
    count = 0
    for each in files:
        count += each
        if count > _WALKED:
            return f"{path} (ignored, over {_WALKED:,} files)"
    return f"{path} (ignored, {words.count(count, 'file')})"


def _counted(diff: str) -> dict[str, tuple[int, int]]:
    """Count the added and removed lines of each path in a unified diff."""
    found, path, header = dict[str, tuple[int, int]](), "", False
    for each in diff.splitlines():
        if each.startswith(("--- a/", "+++ b/")) and (header or each.startswith("---")):
            header = each.startswith("---")
            path = (_PATH.match(each) or ["", path])[1]
            found.setdefault(path, (0, 0))
        elif path and each[:1] in "+-" and each:
            added, removed = found[path]
            found[path] = (added + 1, removed) if each[0] == "+" else (added, removed + 1)
    return found


def colored(frame: Frame, diff: str) -> Iterator[str]:
    """Yield the lines of a unified diff, escaped for a terminal and coloured if colours are on."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for each in block(diff.removesuffix("\n")) if diff else []:
        yield frame.out.paint(each, styles.get(each[:1], ""))
