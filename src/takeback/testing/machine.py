"""A Hypothesis state machine: a real store and the dict model must agree after every step.

Subclass ``SessionMachine`` and override ``open_store`` to run it on another backend. Hypothesis shrinks any sequence of
steps after which the two disagree.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import takeback

from .model import ModelSession, NothingToDo

_TEXT = st.text(max_size=20)
_TITLE = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=10)


class SessionMachine(RuleBasedStateMachine):
    """Appends, plans, forks, switches, rewinds, pops, renames, deletes, restores, undoes, redoes and reopens."""

    persistent = True

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.store = self.open_store()
        self.session = self.store.create_session()
        self.model = ModelSession()

    def open_store(self) -> takeback.Store:
        """Open the store under test; called again to reopen it if ``persistent`` is true."""
        return takeback.open(os.path.join(self._folder.name, "machine.db"), durability="relaxed")

    @initialize(texts=st.lists(_TEXT, max_size=3))
    def begin(self, texts: list[str]) -> None:
        """Start with a few messages."""
        self.append(texts)

    def _add(self, store: Callable[[], object], model: Callable[[], None]) -> None:
        """Add something to both; a session in the trash must refuse it."""
        if self.model.deleted:
            try:
                store()
            except takeback.Conflict:
                return
            raise AssertionError("a session in the trash was written to")
        store()
        model()

    @rule(texts=st.lists(_TEXT, min_size=1, max_size=4))
    def append(self, texts: list[str]) -> None:
        """Append one message or several at once."""
        if texts:
            messages = [{"role": "user", "content": text} for text in texts]
            self._add(lambda: self.session.append(*messages), lambda: self.model.append(*texts))

    @rule(plan=_TEXT)
    def set_plan(self, plan: str) -> None:
        """Set the plan: an entry that a rewind takes back."""
        self._add(lambda: self.session.set_plan(plan), lambda: self.model.set_plan(plan))

    @precondition(lambda self: not self.model.deleted)
    @rule()
    def pop(self) -> None:
        """Pop the last message."""
        popped = self.session.pop()
        assert (None if popped is None else popped.text) == self.model.pop()

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
        """Switch to any branch; one whose fork was undone is not found."""
        name = data.draw(st.sampled_from(sorted(self.model.paths)))
        if name in self.model.hidden_branches:
            try:
                self.session.switch(name)
            except takeback.NotFound:
                return
            raise AssertionError("a branch whose fork was undone was switched to")
        self.session.switch(name)
        self.model.switch(name)

    @rule(title=_TITLE)
    def rename(self, title: str) -> None:
        """Change the title."""
        self.session.rename(title)
        self.model.rename(title)

    @rule(deleted=st.booleans())
    def delete_or_restore(self, deleted: bool) -> None:
        """Move the session to the trash or out of it; doing it twice changes nothing."""
        (self.store.delete_session if deleted else self.store.restore_session)(self.session.id)
        self.model.delete(deleted)
        self.session.refresh()

    @rule(redo=st.booleans())
    def undo_or_redo(self, redo: bool) -> None:
        """Undo or redo; either both sides find something to do, or neither does."""
        try:
            (self.model.redo if redo else self.model.undo)()
        except NothingToDo:
            try:
                (self.session.redo if redo else self.session.undo)()
            except takeback.Conflict:
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
        """The path, read whole, from the end and as a stream, equals the model's, and so does the plan."""
        expected = self.model.texts()
        assert [message.text for message in self.session.messages()] == expected
        assert [message.text for message in self.session.messages(limit=2)] == expected[-2:]
        assert [entry.seq for entry in self.session.entries()] == list(range(1, self.model.head.seq + 1))
        assert self.session.get_plan() == self.model.plan()

    @invariant()
    def place_is_the_same(self) -> None:
        """Head, revision, totals, title and branches equal the model's, in the handle and in the store."""
        for session in (self.session, self.store.get_session(self.session.id)):
            assert (session.head.seq, session.head.attached) == self.model.head[1:]
            assert session.revision == self.model.revision
            assert session.message_count == len(self.model.texts())
            assert (session.title, session.deleted) == (self.model.title, self.model.deleted)
        found = {b.name: (b.fork_seq, b.head_seq, b.is_head) for b in self.session.branches()}
        assert found == self.model.branches()
        assert len(self.store.list_sessions()) == (0 if self.model.deleted else 1)

    def teardown(self) -> None:
        """Verify the store, whatever was done to it."""
        report = self.store.verify()
        self.store.close()
        self._folder.cleanup()
        assert not report, str(report)
