"""Calls that are open: in this process, or in another one that can be killed."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
from pathlib import Path
from typing import Any

import takeback

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["takeback", "takeback.client.open", "takeback.files.workspaces"])


class Running:
    """A call that is open: in this process, or in another one that can be killed."""

    def __init__(self, session: str, family: str, run: Any, names: frozenset[bytes]) -> None:
        self.session, self.family, self.names = session, family, names
        self._run = run
        self.id: str = run.call.id
        self.only: frozenset[bytes] | None = None

    def end(self, how: str) -> None:
        if how == "interrupted":
            self._run.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        elif how == "failed":
            self._run.__exit__(ValueError, ValueError("it failed"), None)
        else:
            self._run.result("ok")


class Elsewhere:
    """A call that is open in a process of its own."""

    def __init__(self, file: Path, session_id: str, session: str, family: str, *, leased: bool) -> None:
        self.session, self.family, self.names = session, family, frozenset[bytes]()
        self.only: frozenset[bytes] | None = None
        self._ours, theirs = _PROCESSES.Pipe()
        about = os.fspath(file), session_id, leased
        self._process = _PROCESSES.Process(target=_work_elsewhere, args=(theirs, *about), daemon=True)
        self._process.start()
        theirs.close()
        self.id = self.ask("open")

    def ask(self, what: str) -> str:
        self._ours.send(what)
        assert self._ours.poll(10), f"the other process does not answer to {what!r}"
        answer: str = self._ours.recv()
        assert not answer.startswith("!"), answer
        return answer

    def end(self, how: str) -> None:
        self.ask("end")
        self.ask("leave")
        self._process.join()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _work_elsewhere(pipe: Any, file: str, session_id: str, leased: bool) -> None:
    """Do in another process what is asked for through a pipe."""
    faulthandler.dump_traceback_later(8)
    store, run = takeback.open(file, durability="relaxed"), None
    session = store.get_session(session_id)
    while True:
        what = pipe.recv()
        faulthandler.dump_traceback_later(8)  # whoever asked gives up soon after: show where this hangs
        try:
            if what == "open":
                if leased:
                    session.__enter__()
                run = session.tool("shell", {"command": "make"})
                run.__enter__()
                pipe.send(run.call.id)
            elif what == "note":
                session.note("still at work")
                pipe.send("noted")
            elif what == "end":
                assert run is not None
                run.result("ok")
                pipe.send("ended")
            else:
                if leased:
                    session.__exit__(None, None, None)
                store.close()
                pipe.send("left")
                return
        except Exception as error:
            pipe.send(f"! {type(error).__name__}: {error}")
        finally:
            faulthandler.cancel_dump_traceback_later()
