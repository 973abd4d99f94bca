"""Defects of earlier systems in how sessions run and end: shown to be absent."""

from collections.abc import Callable
from itertools import product

import pytest

import takeback
from takeback import Session, Store
from takeback.testing.clock import ManualClock

ENDED = ("completed", "error", "timeout", "stopped")


def move(session: Session, status: str) -> None:
    ways: dict[str, Callable[[], None]] = {
        "active": session.reopen,
        "completed": lambda: session.complete("done"),
        "error": lambda: session.fail("bad"),
        "timeout": session.timeout,
        "stopped": session.stop,
    }
    ways[status]()


@pytest.mark.feature("D2", "D8")
@pytest.mark.defect("S3-8")
@pytest.mark.parametrize(("before", "after"), list(product(ENDED, ENDED)))
def test_an_end_is_not_overwritten_by_another(
    takeback_store: Store, takeback_clock: ManualClock, before: str, after: str
) -> None:
    session = takeback_store.create_session()
    move(session, before)
    said = session.refresh().status, session.result, session.error, session.finished_at
    takeback_clock.advance(1000)
    with pytest.raises(takeback.Conflict):
        move(session, after)
    assert (session.refresh().status, session.result, session.error, session.finished_at) == said
    move(session, "active")
    move(session, after)
    assert session.refresh().status == after


@pytest.mark.feature("D2")
@pytest.mark.defect("S3-9", "S3-10")
@pytest.mark.parametrize("status", ENDED)
def test_a_finished_session_takes_no_message_until_it_goes_on(takeback_store: Store, status: str) -> None:
    main = takeback_store.main_session("a")
    main.user("x")
    move(main, status)
    for handle in (main, takeback_store.main_session("a"), takeback_store.get_session(main.id)):
        for add in (handle.user, handle.assistant, handle.send):
            with pytest.raises(takeback.Conflict):
                add("too late")
    with takeback_store.main_session("a") as again:
        again.user("y")
    assert [m.text for m in takeback_store.main_session("a").messages()] == ["x", "y"]


@pytest.mark.feature("D8")
@pytest.mark.defect("S3-7")
def test_a_session_runs_no_negative_time(takeback_store: Store, takeback_clock: ManualClock) -> None:
    session = takeback_store.create_session()
    takeback_clock.advance(-(10**9))
    assert session.runtime() == 0
    session.complete()
    assert session.runtime() == 0
    assert session.tree().seconds == 0
