"""The contract: what was spent, by model, day, agent and tool, every branch once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Invalid, Session, Spent, Store, Usage

from ..clock import ManualClock
from .base import Contract

NOON = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000
PRICED, UNKNOWN = "claude-sonnet-4-5", "nobody-knows-1"


def reply(text: str, model: str, *, tool: str | None = None, tokens: int = 1000) -> dict[str, Any]:
    """Return an answer as the Anthropic SDK gives it, with a model and a usage, and no cost."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if tool is not None:
        content.append({"type": "tool_use", "id": f"call-{text}", "name": tool, "input": {}})
    usage = {"input_tokens": tokens, "output_tokens": 10}
    return {"role": "assistant", "model": model, "content": content, "usage": usage, "type": "message"}


def counted(found: list[Spent]) -> dict[str, tuple[int, int, int, int]]:
    """Return messages, calls, failures and input tokens by key."""
    return {each.key: (each.messages, each.tool_calls, each.tool_failures, each.usage.input_tokens) for each in found}


class Money(Contract):
    """Money does not come back with a rewind, and nothing is counted twice."""

    def spend(self, store: Store, clock: ManualClock) -> Session:
        """Spend something on three branches, one of them of a fork, on two days."""
        session = store.create_session("s", agent="coder", model="first-model")
        session.user("dig")
        session.append(reply("a", PRICED, tool="bash"))
        session.tool_result("call-a", "no", success=False)
        point = session.head.seq
        session.append(reply("left", PRICED))
        session.rewind(point)
        clock.advance(13 * HOUR)
        session.append(reply("b", UNKNOWN, tool="search", tokens=5))
        session.tool_result("call-b", "yes")
        session.assistant("paid", usage=Usage(7, 1, cost=0.5))
        with session.tool("make") as run:
            run.error("failed")
        forked = session.fork(as_session=True, name="fork")
        forked.append(reply("forked", PRICED, tokens=300))
        store.create_session("other", agent="triage").user("hello")
        return session

    @pytest.mark.trial("T52")
    @pytest.mark.feature("B1", "A10")
    def test_every_branch_counts_once(self, tmp_path: Path) -> None:
        clock = ManualClock(NOON)
        with self.open(tmp_path, clock=clock) as store:
            session = self.spend(store, clock)
            by_agent, by_day = counted(store.spending("agent")), counted(store.spending("day"))
            by_model, by_tool = counted(store.spending()), counted(store.spending("tool"))
            assert by_model == {
                PRICED: (3, 1, 0, 2300),
                UNKNOWN: (1, 1, 0, 5),
                "first-model": (1, 0, 0, 7),
            }
            assert {key: found[1:3] for key, found in by_tool.items()} == {
                "bash": (1, 1),
                "search": (1, 0),
                "make": (1, 1),
            }
            assert by_agent == {"coder": (9, 3, 2, 2312), "triage": (1, 0, 0, 0)}
            assert by_day == {"2026-01-31": (4, 1, 1, 2000), "2026-02-01": (6, 2, 1, 312)}
            east = counted(store.spending("day", time_zone=timezone(timedelta(hours=13))))
            assert east == {"2026-02-01": (10, 3, 2, 2312)}
            spent = [store.get_session(name).stats(spent=True) for name in ("s", "fork", "other")]
            whole = (sum(each.messages for each in spent), sum(each.tool_calls for each in spent))
            assert whole == (10, 3), "the same as what each session says"
            assert counted(store.spending("agent", session=session)) == {"coder": (8, 3, 2, 2012)}
            assert counted(store.spending("agent", agent="triage")) == {"triage": (1, 0, 0, 0)}
            since = datetime(2026, 2, 1, tzinfo=UTC)
            assert counted(store.spending("day", since=since)) == {"2026-02-01": by_day["2026-02-01"]}
            for wrong in ("month", None, 3):
                with pytest.raises(Invalid):
                    store.spending(wrong)  # type: ignore[arg-type]
            with pytest.raises(Invalid):
                store.spending("day", time_zone="UTC")  # type: ignore[arg-type]

    @pytest.mark.trial("T52")
    @pytest.mark.feature("B1", "A10")
    def test_what_has_no_stored_cost_is_priced_when_it_is_shown(self, tmp_path: Path) -> None:
        clock = ManualClock(NOON)
        with self.open(tmp_path, clock=clock) as store:
            session = self.spend(store, clock)
            usages = [Usage(1000, 10), Usage(1000, 10), Usage(300, 10)]
            wanted = sum(takeback.priced(usage, PRICED).cost for usage in usages)
            models = {each.key: each for each in store.spending("model")}
            assert models[PRICED].usage.cost == pytest.approx(wanted)
            assert (models[PRICED].priced, dict(models[PRICED].unpriced)) == (3, {})
            assert (models[UNKNOWN].usage.cost, dict(models[UNKNOWN].unpriced)) == (0, {UNKNOWN: 1})
            paid = models["first-model"]
            assert (paid.usage.cost, paid.priced, dict(paid.unpriced)) == (0.5, 0, {}), "a stored cost counts as it is"
            agents = {each.key: each for each in store.spending("agent")}
            assert agents["coder"].usage.cost == pytest.approx(wanted + 0.5)
            assert (agents["coder"].priced, dict(agents["coder"].unpriced)) == (3, {UNKNOWN: 1})
            assert session.stats(spent=True).usage.cost == 0.5, "only what was stored"
