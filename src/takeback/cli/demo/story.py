"""The three acts: what is typed, and what must be true afterwards.

A proof reads the project's files and the store, never the output. The first one that fails ends the demo.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...client.open import open_store
from ...client.session import Session
from ...shell.failures import Stop
from ..frame import Frame
from ..output import Output
from .agent import MEANWHILE
from .scratch import Kept, Scratch
from .shell import Ran, Shell

Files = dict[str, Kept]
HALF = "".join(MEANWHILE)
YOURS = "config.py"


class Stage:
    """The demo's output: headings, commands, what they print, proofs."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._fresh = True  # whether the cursor is at the start of a line
        self.proofs = list[str]()

    def show(self, text: str) -> None:
        """Write what a command printed."""
        if self._out.for_people:
            sys.stdout.write(text)
            sys.stdout.flush()
        self._fresh = text.endswith("\n")

    def say(self, text: str, style: str = "") -> None:
        """Write a line of the demo itself."""
        begin = "" if self._fresh else "\n"
        self.show(f"{begin}{self._out.paint(text, style) if text else ''}\n")

    def act(self, number: int, title: str) -> None:
        """Write the heading of an act."""
        self.say("")
        self.say(f"{number}. {title}", "bold")

    def prove(self, holds: bool, claim: str) -> None:
        """Record a claim as proved; raise ``Stop`` if it does not hold."""
        if not holds:
            raise Stop(f"this does not hold: {claim}. That is a bug: please report it")
        self.proofs.append(claim)
        self.say(f"{self._out.mark('✓', '=>')} {claim}", "green")


class Story:
    """One run of the demo."""

    def __init__(self, frame: Frame, scratch: Scratch) -> None:
        self._stage, self._scratch = Stage(frame.out), scratch
        self._columns = shutil.get_terminal_size((80, 24)).columns if frame.out.colored else None
        self._shell = self._new_shell()

    @property
    def proofs(self) -> list[str]:
        """The claims that were proved."""
        return self._stage.proofs

    def play(self) -> None:
        """Play the three acts."""
        try:
            self._enter()
            self._kill()
            broken, after = self._rewind()
            self._undo_and_redo(broken, after)
            self._search()
        finally:
            self._shell.close()

    # ------------------------------------------------------------------ typing

    def _new_shell(self) -> Shell:
        """Start a shell that knows nothing of the user's own store."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("TAKEBACK_")}
        if self._columns and env.get("TERM", "dumb") == "dumb":
            env["TERM"] = "xterm"  # colours are on, and programs would drop them on a dumb terminal
        if "PYTHONPATH" in env:  # its paths may be relative to here, and the shell changes directory
            env["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, env["PYTHONPATH"].split(os.pathsep)))
        return Shell(
            folder=os.getcwd(), env={**env, "TAKEBACK_PAGER": "cat"}, columns=self._columns, show=self._stage.show
        )

    def _type(self, command: str, *, may_fail: bool = False) -> Ran:
        self._stage.say(f"$ {command}", "cyan")
        ran = self._shell.type(command)
        if ran.code and not may_fail:
            raise Stop(f"{command!r} failed with exit code {ran.code}; everything is left in {self._scratch.folder}")
        return ran

    def _enter(self) -> None:
        self._stage.say("A coding agent that follows a script, in a directory made for it:")
        self._type(f"cd {shlex.quote(str(self._scratch.folder))}")
        self._type("cat env")
        self._type(". ./env; cd payments; ls")

    # ------------------------------------------------------------------ the acts

    def _kill(self) -> None:
        stage = self._stage
        stage.act(1, "Killed with kill -9 in the middle of an answer, while a tool runs")
        self._type('agent "Fix the flaky test" &')
        self._shell.wait_for(HALF)
        self._type('kill -9 $!; wait $!; echo "exit code $?"')
        self._type("takeback resume fix-retry")
        stage.say("Start it again. The next request to the provider, shortened:", "bold")
        sent = self._type("takeback resume fix-retry --exec 'agent --request'", may_fail=True)
        with self._session() as session:
            halves = [each.text for each in session.messages() if each.status == "interrupted"]
            stage.prove(halves == [HALF], f"the partial answer is kept: all {len(HALF)} characters that were shown")
            stage.prove(_are_closed(session), "the open call is closed: its result says it was interrupted")
        stage.prove(sent.code == 0, "the strict validators of five providers accept it")
        self._type("takeback resume fix-retry --exec agent")
        with self._session() as session:
            stage.prove(not session.pending_calls() and session.turn_count == 1, "the agent finished its turn")

    def _rewind(self) -> tuple[Files, Files]:
        stage, before = self._stage, self._scratch.look()
        stage.act(2, "A shell command breaks five files while you edit a sixth")
        self._type('agent "Clean up" &')
        self._shell.wait_for("(no output)\n")  # the command has finished; the agent is still talking
        self._type(f"echo 'TIMEOUT = 60  # your own' >> {YOURS}")
        self._type("wait")
        broken = self._scratch.look()
        stage.prove(len(_changed(before, broken) - {YOURS}) == 6, "five files are broken, one of them renamed")
        self._type("takeback rewind fix-retry:1 -y")
        after = self._scratch.look()
        for each in _table(before, broken, after):
            stage.say(each)
        stage.prove(_changed(before, after) == {YOURS}, "every other file is as before: same hash, same mode")
        stage.prove(after[YOURS] == broken[YOURS], f"your {YOURS} is as you left it")
        with self._session() as session:
            stage.prove(session.turn_count == 1, "the conversation is back at the end of turn 1 too")
        return broken, after

    def _undo_and_redo(self, broken: Files, after: Files) -> None:
        stage = self._stage
        stage.act(3, "Undo, and redo after a restart")
        self._type("takeback undo -y")
        stage.prove(self._scratch.look() == broken, "every file is broken again, byte for byte")
        with self._session() as session:
            stage.prove(session.turn_count == 2, "the conversation has its second turn again")
        self._shell.close()
        stage.say("That shell has exited. In a new one:", "bold")
        self._shell = self._new_shell()
        self._type(f"cd {shlex.quote(str(self._scratch.folder))}; . ./env; cd payments")
        self._type("takeback redo -y")
        stage.prove(self._scratch.look() == after, "every file is as after the rewind, byte for byte")
        with self._session() as session:
            stage.prove(session.turn_count == 1, "the conversation ends with turn 1")
        self._type("takeback verify")

    def _search(self) -> None:
        """Find a command of the turn that was rewound."""
        stage = self._stage
        stage.say("Which command moved notes.md? Its turn was rewound, but nothing is lost:", "bold")
        self._type("takeback search --branches mv notes.md")
        with open_store(self._scratch.store, read_only=True) as store:
            here, anywhere = store.search("mv"), store.search("mv", branches=True)
        stage.prove(not here and len(anywhere) == 1, "the search finds it on the branch that the rewind left")

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Open the agent's session read-only, without holding it."""
        with open_store(self._scratch.store, read_only=True) as store:
            yield store.get_session("fix-retry")


def _are_closed(session: Session) -> bool:
    """Whether the request holds at least one call, and a result for each."""
    blocks = [block for message in session.context("anthropic").messages for block in message["content"]]
    asked = {block["id"] for block in blocks if isinstance(block, dict) and block["type"] == "tool_use"}
    told = {block["tool_use_id"] for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"}
    return bool(asked) and asked == told


def _changed(one: Files, other: Files) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def _table(before: Files, broken: Files, after: Files) -> Iterable[str]:
    """Yield a table of the files at three moments."""
    yield f"  {'':14}{'before':14}{'broken':14}rewound"
    for name in sorted(before.keys() | broken.keys() | after.keys()):
        moments = (before.get(name), broken.get(name), after.get(name))
        shown = "".join(f"{'-' if each is None else str(each):14}" for each in moments)
        yield f"  {name:14}{shown}{_verdict(name, *moments)}".rstrip()


def _verdict(name: str, before: Kept | None, broken: Kept | None, after: Kept | None) -> str:
    if before == after:
        return "as before" if before else "gone again"
    return "yours, kept" if after == broken else "?"
