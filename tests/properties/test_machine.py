"""The state machine of ``takeback.testing`` on every backend, blocking and awaited."""

import os

import pytest
from hypothesis import settings

import _postgres
import takeback
from takeback.testing import awaited
from takeback.testing.machine import SessionMachine


class MemoryMachine(SessionMachine):
    persistent = False

    def open_store(self) -> takeback.Store:
        return takeback.open(":memory:")


class AwaitedMachine(SessionMachine):
    def open_store(self) -> takeback.Store:
        return awaited.open(os.path.join(self._folder.name, "machine.db"), durability="relaxed")


class AwaitedMemoryMachine(MemoryMachine):
    def open_store(self) -> takeback.Store:
        return awaited.open(":memory:")


class PostgresMachine(SessionMachine):
    def open_store(self) -> takeback.Store:
        return takeback.open(_postgres.app_url(self._folder.name))


class AwaitedPostgresMachine(SessionMachine):
    def open_store(self) -> takeback.Store:
        return awaited.open(_postgres.url(self._folder.name))


@pytest.mark.slow
@pytest.mark.feature("F7", "E7")
class TestFileMachine(SessionMachine.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.slow
@pytest.mark.feature("F7", "E7")
class TestMemoryMachine(MemoryMachine.TestCase):
    settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@pytest.mark.slow
@pytest.mark.feature("F7", "C3")
class TestAwaitedMachine(AwaitedMachine.TestCase):
    settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


@pytest.mark.slow
@pytest.mark.feature("F7", "C3")
class TestAwaitedMemoryMachine(AwaitedMemoryMachine.TestCase):
    settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


@pytest.mark.slow
@pytest.mark.feature("F7", "C6", "E6")
class TestPostgresMachine(PostgresMachine.TestCase):
    settings = settings(max_examples=15, stateful_step_count=30, deadline=None)


@pytest.mark.slow
@pytest.mark.feature("F7", "C6", "E6")
class TestAwaitedPostgresMachine(AwaitedPostgresMachine.TestCase):
    settings = settings(max_examples=8, stateful_step_count=30, deadline=None)
