"""The contract: appending and reading."""

from __future__ import annotations

from typing import Any

import pytest

from takeback import Invalid, NotFound, Session, Store, Usage

from .base import Contract, said


class Messages(Contract):
    """Appending and reading."""

    @pytest.mark.feature("A2", "C2", "E6")
    def test_messages_come_back_in_order_with_all_their_fields(self, session: Session) -> None:
        usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=3, reasoning_tokens=2, cost=0.0125)
        session.system("be brief")
        session.user("hello", id="u1", metadata={"k": [1, None, True]})
        session.assistant(
            [{"type": "text", "text": "hi"}], model="m", usage=usage, duration=1.5, parent_id="u1", raw=b'{"b": 1}'
        )
        first, second, third = session.messages()
        assert [m.role for m in (first, second, third)] == ["system", "user", "assistant"]
        assert (second.id, second.metadata, second.turn) == ("u1", {"k": [1, None, True]}, 1)
        assert (third.text, third.model, third.usage, third.duration) == ("hi", "m", usage, 1.5)
        assert (third.parent_id, third.raw, third.status) == ("u1", b'{"b": 1}', "complete")
        assert [m.seq for m in (first, second, third)] == [1, 2, 3]

    @pytest.mark.feature("C2")
    def test_unknown_fields_and_roles_survive(self, session: Session) -> None:
        given = {"role": "oracle", "content": "so it is", "mood": None, "aura": {"id": "a1"}, "x": 1}
        session.append(given)
        message = session.messages()[0]
        assert message.role == "oracle"
        assert message.extra == {"mood": None, "aura": {"id": "a1"}, "x": 1}

    @pytest.mark.feature("A2")
    def test_what_append_returns_is_what_is_read(self, session: Session) -> None:
        returned = [session.user("a"), *session.append({"role": "tool", "content": "b"}, {"role": "user"})]
        assert returned == session.messages()
        assert [m.turn for m in returned] == [1, 1, 2]

    @pytest.mark.feature("A2")
    def test_an_append_of_many_is_all_or_nothing(self, session: Session) -> None:
        with pytest.raises(Invalid):
            session.append({"role": "user", "content": "fine"}, {"role": "user", "content": object()})
        assert said(session) == []
        assert session.refresh().revision == 0

    @pytest.mark.feature("A6")
    def test_every_append_call_is_one_revision(self, session: Session) -> None:
        session.user("a")
        session.append({"role": "user", "content": "b"}, {"role": "user", "content": "c"})
        assert session.revision == 2
        assert session.refresh().revision == 2

    @pytest.mark.feature("D10")
    def test_windows_from_either_end(self, session: Session) -> None:
        session.append(*({"role": "user", "content": str(n)} for n in range(1, 11)))

        def texts(**window: int) -> list[str]:
            return [m.text for m in session.messages(**window)]  # type: ignore[arg-type]

        assert texts(limit=3) == ["8", "9", "10"]
        assert texts(limit=3, after=2) == ["3", "4", "5"]
        assert texts(limit=3, before=5) == ["2", "3", "4"]
        assert texts(after=7) == ["8", "9", "10"]
        assert texts(before=3) == ["1", "2"]
        assert texts(after=3, before=6) == ["4", "5"]
        assert texts(limit=0) == texts(after=10) == texts(before=1) == []
        assert texts(limit=99) == [str(n) for n in range(1, 11)]

    @pytest.mark.feature("D6")
    def test_the_limit_counts_after_the_filter(self, session: Session) -> None:
        for n in range(6):
            session.append({"role": "user", "content": str(n)}, *[{"role": "tool", "content": "t"}] * 40)
        assert [m.text for m in session.messages(limit=2, tools=False)] == ["4", "5"]
        assert [m.text for m in session.messages(limit=2, after=0, tools=False)] == ["0", "1"]
        assert [m.text for m in session.iter_messages(tools=False)] == list("012345")

    @pytest.mark.feature("D10")
    def test_a_stream_shows_the_path_as_it_was_when_it_began(self, session: Session) -> None:
        session.append(*({"role": "user", "content": str(n)} for n in range(1200)))
        stream = session.iter_messages()
        assert next(stream).text == "0"
        session.user("later")
        session.rewind(3)
        assert [m.seq for m in stream] == list(range(2, 1201))

    @pytest.mark.feature("A2")
    def test_a_message_is_found_by_its_id(self, session: Session) -> None:
        given, own = session.user("a", id="mine"), session.user("b")
        assert session.message("mine") == given
        assert session.message(own.id) == own
        with pytest.raises(NotFound):
            session.message("nosuch")
        session.rewind(1)
        with pytest.raises(NotFound):
            session.message(own.id)

    @pytest.mark.feature("C5")
    @pytest.mark.parametrize(
        "bad", ["text", None, 5, ["role"], {"content": "no role"}, {"role": 5}, {"role": "user", "metadata": 3}]
    )
    def test_what_is_no_message_is_refused(self, session: Session, bad: Any) -> None:
        with pytest.raises(Invalid):
            session.append(bad)
        with pytest.raises(ValueError):
            session.append(bad)
        assert said(session) == []

    @pytest.mark.feature("C5")
    def test_a_misspelt_field_is_refused(self, session: Session) -> None:
        with pytest.raises(TypeError, match="metdata"):
            session.user("a", metdata={})  # type: ignore[call-arg]

    @pytest.mark.feature("E3")
    @pytest.mark.parametrize("size", [65_000, 70_000, 1_100_000, 3_000_000])
    def test_large_messages_come_back_whole(self, store: Store, session: Session, size: int) -> None:
        text, raw = "ä" * (size // 2), bytes(range(256)) * (size // 256)
        session.user(text, raw=raw)
        message = session.messages()[0]
        assert (message.text, message.raw) == (text, raw)

    @pytest.mark.feature("E3")
    def test_equal_content_is_stored_once(self, store: Store, session: Session) -> None:
        for _ in range(3):
            session.user("x" * 200_000)
        assert store.stats().blobs == 1
