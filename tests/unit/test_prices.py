"""Prices come from a published list; what is not on it has none."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices import Usage as Theirs
from genai_prices import calc_price

import takeback
from takeback import Invalid, NotFound, Store, Unsupported, Usage

pytestmark = pytest.mark.feature("B1")
MODEL = "claude-sonnet-4-5"


def test_a_price_is_that_of_the_list_with_the_cache_counted_apart() -> None:
    used = Usage(input_tokens=10_000, output_tokens=500, cache_read_tokens=6000, cache_write_tokens=1000)
    theirs = Theirs(input_tokens=10_000, output_tokens=500, cache_read_tokens=6000, cache_write_tokens=1000)
    wanted = calc_price(theirs, model_ref=MODEL, provider_id="anthropic").total_price
    found = takeback.priced(used, MODEL, provider="anthropic")
    assert Decimal(str(found.cost)) == wanted
    plain = takeback.priced(Usage(input_tokens=10_000, output_tokens=500), MODEL)
    assert found.cost < plain.cost  # reading from the cache is cheaper than the prompt
    assert found.input_tokens == used.input_tokens
    assert found.cache_read_tokens == used.cache_read_tokens


def test_sdk_usage_and_our_names_of_providers_are_understood() -> None:
    given = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
    assert takeback.priced(given, "gpt-5", provider="openai-chat") == takeback.priced(given, "gpt-5", provider="openai")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert takeback.priced({"promptTokenCount": 1000}, "gemini-2.5-pro", provider="gemini", at=at).cost > 0


def test_no_price_is_guessed() -> None:
    with pytest.raises(NotFound, match="no price is known for 'nobody-knows-1'"):
        takeback.priced(Usage(input_tokens=1), "nobody-knows-1")
    with pytest.raises(Invalid):
        takeback.priced(Usage(input_tokens=1), "")


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(Unsupported, match=r"takeback\[prices\]"):
        takeback.priced(Usage(), MODEL)


def test_what_was_spent_adds_up_over_forks_rewinds_and_a_replay(takeback_store: Store) -> None:
    """Each answer is paid for once: a fork reads it for nothing, and a rewind gives no money back."""
    used = takeback.priced(Usage(input_tokens=1000, output_tokens=100), MODEL)
    session = takeback_store.create_session()
    session.user("one")
    first = session.assistant("answer", usage=used, idempotency_key="a")
    session.assistant("answer", usage=used, idempotency_key="a")  # a retry
    session.compact(first, "they spoke")
    fork = session.fork(as_session=True)
    fork.assistant("more", usage=used)
    session.rewind(1)
    session.assistant("again", usage=used)
    assert session.stats(spent=True).usage == used + used
    assert session.stats().usage == used
    assert fork.stats().usage == used + used
    assert fork.stats(spent=True).usage == used
