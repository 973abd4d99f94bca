"""What people see of a value: short texts, and tables in notebooks that nothing can break out of."""

import pytest

import takeback
from takeback import Store

_EVIL = "<script>alert('x')</script>\n& \"quotes\""


@pytest.mark.feature("F10")
def test_reprs_are_short_and_say_what_it_is(takeback_store: Store) -> None:
    session = takeback_store.create_session("fix", prompt="Add OAuth login")
    message = session.user("x" * 1000, usage={"input_tokens": 22_000, "output_tokens": 1})
    shown = repr(session)
    assert shown.startswith(f"<Session {session.id[:12]} 'Add OAuth login' main, 1 turn, 22k tokens, active>")
    things = [
        session,
        message,
        session.state,
        session.checkpoint("c"),
        session.preview_rewind(0),
        session.fork(),
        session.add_task("y" * 500),
        session.note("z" * 500),
        session.rename("t"),
        session.tool("bash"),
        takeback_store,
        takeback_store.list_sessions(),
        takeback_store.create_agent("a"),
        next(iter(session.turns())),
        next(iter(session.entries())),
        session.stats(),
        takeback_store.verify(),
    ]
    for thing in things:
        assert len(repr(thing)) < 600, repr(thing)
        assert "\n" not in repr(thing)


@pytest.mark.feature("F10")
def test_notebook_views_are_escaped_and_hold_no_script(takeback_store: Store) -> None:
    session = takeback_store.create_session(title=_EVIL.replace("\n", " "), metadata={"x": _EVIL})
    message = session.user(_EVIL)
    views = [
        session,
        message,
        session.stats(),
        session.preview_rewind(0),
        takeback_store,
        takeback_store.list_sessions(),
    ]
    for view in views:
        html = view._repr_html_()
        assert html.startswith("<table>")
        assert "<script" not in html
        assert "alert" not in html or "&lt;script&gt;" in html


@pytest.mark.feature("B1")
@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (42.9, "42s"), (185, "3m 5s"), (7260, "2h 1m"), (-5, "0s")])
def test_durations_are_for_people(seconds: float, text: str) -> None:
    from takeback.model.session import show_duration

    assert show_duration(seconds) == text


@pytest.mark.feature("F10")
def test_the_awaitable_api_is_loaded_only_when_asked_for() -> None:
    import subprocess
    import sys

    script = (
        "import sys, takeback; assert 'asyncio' not in sys.modules; takeback.aopen; assert 'asyncio' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert "aopen" in takeback.__all__
    with pytest.raises(AttributeError):
        takeback.nosuch
