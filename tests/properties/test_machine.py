"""The state machine of ``holdfast.testing`` on every backend."""

import pytest
from hypothesis import settings

import holdfast
from holdfast.testing.machine import SessionMachine


class MemoryMachine(SessionMachine):
    persistent = False

    def open_store(self) -> holdfast.Store:
        return holdfast.open(":memory:")


@pytest.mark.slow
class TestFileMachine(SessionMachine.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.slow
class TestMemoryMachine(MemoryMachine.TestCase):
    settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
