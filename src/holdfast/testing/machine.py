"""A Hypothesis state machine: a real store and the dict model, step by step the same.

Subclass ``SessionMachine`` with ``open_store`` to run it on another backend; Hypothesis shrinks any
sequence of steps after which the two disagree.
"""

from __future__ import annotations

import os
import tempfile

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import holdfast

from .model import ModelSession, NothingToDo

_TEXT = st.text(max_size=20)


class SessionMachine(RuleBasedStateMachine):
    """Appends, forks, switches, rewinds, undoes, redoes and reopens; compares after every step."""

    persistent = True

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.store = self.open_store()
        self.session = self.store.create_session()
        self.model = ModelSession()

    def open_store(self) -> holdfast.Store:
        """Open the store under test; called again to reopen it where ``persistent`` is true."""
        return holdfast.open(os.path.join(self._folder.name, "machine.db"), durability="relaxed")

    @initialize(texts=st.lists(_TEXT, max_size=3))
    def begin(self, texts: list[str]) -> None:
        """Start with a few messages."""
        self.append(texts)

    @rule(texts=st.lists(_TEXT, min_size=1, max_size=4))
    def append(self, texts: list[str]) -> None:
        """Append one message or several at once."""
        if texts:
            self.session.append(*({"role": "user", "content": text} for text in texts))
            self.model.append(*texts)

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        """Rewind to any point of the path."""
        to = data.draw(st.integers(0, self.model.head.seq))
        self.session.rewind(to)
        self.model.rewind(to)

    @rule(data=st.data(), named=st.booleans())
    def fork(self, data: st.DataObject, named: bool) -> None:
        """Fork at any point of the path."""
        at = data.draw(st.integers(0, self.model.head.seq))
        name = f"branch {len(self.model.paths)}" if named else None
        assert self.session.fork(at, name=name).name == self.model.fork(at, name)

    @rule(data=st.data())
    def switch(self, data: st.DataObject) -> None:
        """Switch to any branch."""
        name = data.draw(st.sampled_from(sorted(self.model.paths)))
        self.session.switch(name)
        self.model.switch(name)

    @rule(redo=st.booleans())
    def undo_or_redo(self, redo: bool) -> None:
        """Undo or redo; both sides must find something to do, or neither."""
        try:
            (self.model.redo if redo else self.model.undo)()
        except NothingToDo:
            try:
                (self.session.redo if redo else self.session.undo)()
            except holdfast.Conflict:
                return
            raise AssertionError("the store found something to undo, the model did not") from None
        (self.session.redo if redo else self.session.undo)()

    @precondition(lambda self: self.persistent)
    @rule()
    def reopen(self) -> None:
        """Close the store and open it again."""
        session_id = self.session.id
        self.store.close()
        self.store = self.open_store()
        self.session = self.store.get_session(session_id)

    @invariant()
    def path_is_the_same(self) -> None:
        """The path, read whole, from the end and in a stream, is the model's."""
        expected = self.model.texts()
        assert [message.text for message in self.session.messages()] == expected
        assert [message.text for message in self.session.messages(limit=2)] == expected[-2:]
        assert [message.seq for message in self.session.iter_messages()] == list(range(1, len(expected) + 1))

    @invariant()
    def place_is_the_same(self) -> None:
        """Head, revision, totals and branches are the model's, in the handle and in the store."""
        for session in (self.session, self.store.get_session(self.session.id)):
            assert (session.head.seq, session.head.attached) == self.model.head[1:]
            assert session.revision == self.model.revision
            assert session.message_count == self.model.head.seq
        found = {b.name: (b.fork_seq, b.head_seq, b.is_head) for b in self.session.branches()}
        expected = {
            name: (self.model.forks[name], len(path), name == self.model.head.branch)
            for name, path in self.model.paths.items()
        }
        assert found == expected

    def teardown(self) -> None:
        """Whatever was done, the store must verify."""
        report = self.store.verify()
        self.store.close()
        self._folder.cleanup()
        assert not report, str(report)
