"""Sessions that Hypothesis makes, and their lines."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

from hypothesis import strategies as st

import takeback
from takeback import Session, Store
from takeback.exporters import jsonl
from takeback.importers import jsonl as importing
from takeback.testing.elsewhere import session_elsewhere

TEXT = st.text(st.characters(), max_size=40)  # any character, half ones too
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), TEXT),
        st.tuples(st.just("assistant"), TEXT),
        st.tuples(
            st.just("raw"), st.binary(max_size=30) | st.sampled_from([b"{}", b"null", b'{"$text": 1}', b"[1.0]"])
        ),
        st.tuples(st.just("attach"), st.binary(max_size=50)),
        st.tuples(st.just("large"), st.integers(1, 3)),
        st.tuples(st.just("tool"), VALUES),
        st.tuples(st.just("task"), TEXT),
        st.tuples(st.just("plan"), TEXT),
        st.tuples(st.just("note"), TEXT),
        st.tuples(st.just("state"), VALUES),
        st.tuples(st.just("rewind"), st.floats(0, 1)),
        st.tuples(st.just("fork"), st.floats(0, 1)),
        st.tuples(st.just("session"), st.floats(0, 1)),
        st.tuples(st.just("checkpoint"), st.none()),
        st.tuples(st.just("undo"), st.none()),
        st.tuples(st.just("spawn"), st.none()),
    ),
    max_size=25,
)


def play(store: Store, steps: list[tuple[str, Any]]) -> list[Session]:
    """Do the steps in a new session, and in those that come of it."""
    sessions = [session_elsewhere(store, agent="made", workspace=f"/w{len(steps) % 3}" if len(steps) % 3 else None)]
    for number, (what, value) in enumerate(steps):
        session = sessions[number % len(sessions)].refresh()
        at = 0 if not isinstance(value, float) else round(value * session.head.seq)
        try:
            _step(store, sessions, session, what, value, at, number)
        except takeback.Error:
            continue
    return sessions


def _step(store: Store, sessions: list[Session], session: Session, what: str, value: Any, at: int, number: int) -> None:
    if what in ("user", "assistant"):
        getattr(session, what)(value, idempotency_key=f"k{number}")
    elif what == "raw":
        session.assistant("as given", raw=value)
    elif what == "attach":
        session.user("see", attachments=[value])
    elif what == "large":
        session.user("x" * 70_000 * value)
    elif what == "tool":
        session.append({"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "name": "t"}]})
        session.tool_result(f"c{number}", value, success=number % 2 == 0)
    elif what == "task":
        session.add_task(value)
    elif what == "plan":
        session.set_plan(value)
    elif what == "note":
        session.note(value)
    elif what == "state":
        session.state.set("k", value)
    elif what == "rewind":
        session.rewind(at)
    elif what == "fork":
        session.fork(at, name=f"branch {number}")
    elif what == "session":
        sessions.append(session.fork(at, as_session=True))
    elif what == "checkpoint":
        session.checkpoint(f"point {number}")
    elif what == "undo":
        session.undo()
    elif what == "spawn":
        sessions.append(store.create_session(kind="subagent", parent=session, agent="made", label=f"l{number}"))


def lines_of(store: Store, *sessions: Session) -> bytes:
    """Export sessions."""
    out = io.BytesIO()
    jsonl.write(store, sessions or [*store.iter_sessions(archived=None)], out)
    return out.getvalue()


def read_into(store: Store, data: bytes, **how: Any) -> importing.Imported:
    """Import lines."""
    return importing.read(store, io.BytesIO(data), **how)


def resealed(lines: list[dict[str, Any]]) -> bytes:
    """Write records with a last line that fits them, as somebody who forges a file would."""
    body = b"".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for each in lines)
    end = {"type": "end", "lines": len(lines), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"
