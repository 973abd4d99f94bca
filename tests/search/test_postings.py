"""Every engine finds what a plain look at all documents finds, for random documents, questions and erasures.

The model below is the meaning of a question, written down as simply as it can be. An engine is a way to make its tables
and an object that keeps the contract (``search.index``); ``ENGINES`` names them.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

import _postgres
import takeback
from takeback.search import blocks, fts, lookup, terms
from takeback.search.index import All, But, IndexedText, Match, SearchIndex, Some, TermRun, Wanted, Within, tally
from takeback.search.postings import Postings
from takeback.storage.base import Derived, Tx, scalars
from takeback.storage.connection import SqliteTx, connect
from takeback.tables import search as tables

T = TypeVar("T")
LENT = _postgres.Lent()
POSTINGS = ("postings on SQLite", "postings on PostgreSQL")
ENGINES = (*POSTINGS, "full text")
FAN = 2  # so that a few documents already make segments of every level


class Engine(NamedTuple):
    """An index with empty tables, and how to run a step that reads or writes."""

    index: SearchIndex
    scope: str
    read: Callable[[Callable[[Tx], Any]], Any]
    write: Callable[[Callable[[Tx], Any]], Any]

    def find(self, wanted: Wanted, where: Within, limit: int, counted: Sequence[TermRun] = ()) -> list[Match]:
        found: list[Match] = self.read(lambda tx: self.index.find(tx, wanted, where, limit, counted))
        return found

    def containing(self, part: str) -> list[str]:
        found: list[str] = self.read(lambda tx: self.index.containing(tx, self.scope, part, 1000))
        return found

    def check(self) -> list[str]:
        found: list[str] = self.read(lambda tx: self.index.check(tx, self.scope))
        return found


@contextlib.contextmanager
def in_memory(sql: str, index: Callable[[], SearchIndex]) -> Iterator[Callable[[], Engine]]:
    """Make tables in memory, anew each time."""
    with contextlib.ExitStack() as open_:

        def made() -> Engine:
            connection = connect(":memory:", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            open_.callback(connection.close)
            for name, function in fts.FUNCTIONS.items():
                connection.register_fts5_function(name, function)
            tx = SqliteTx(connection.cursor())
            tx.all(sql)
            return Engine(index(), "", lambda op: op(tx), lambda op: op(tx))

        yield made


def on_sqlite() -> contextlib.AbstractContextManager[Callable[[], Engine]]:
    """Make the tables of a server."""
    made = (
        f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({key})) WITHOUT ROWID;"
        for name, (columns, key) in {**tables.TABLES, **tables.POSTINGS}.items()
    )
    return in_memory("".join(made), lambda: Postings(FAN))


def in_full_text() -> contextlib.AbstractContextManager[Callable[[], Engine]]:
    """Make the tables of a SQLite store's index."""
    return in_memory(fts.SQL, fts.Fts)


@contextlib.contextmanager
def on_postgres(place: Path) -> Iterator[Callable[[], Engine]]:
    """Use one store, each time in a scope of its own, as a role under row security."""
    numbers = itertools.count()
    with takeback.open(LENT.url(place)) as store:

        def made() -> Engine:
            scope = f"tenant {next(numbers)}"
            backend = store.scoped(scope)._backend
            return Engine(Postings(FAN), scope, backend.read, backend.write)

        yield made
    LENT.take_back()


@pytest.fixture(params=POSTINGS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Return what makes an engine of postings with empty tables."""
    with _made(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=ENGINES)
def each_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Return what makes any engine with empty tables."""
    with _made(request.param, tmp_path) as made:
        yield made


def _made(name: str, tmp_path: Path) -> contextlib.AbstractContextManager[Callable[[], Engine]]:
    ways = (on_sqlite, lambda: on_postgres(tmp_path), in_full_text)
    return ways[ENGINES.index(name)]()


# ---------------------------------------------------------------------- what a question means


class Model:
    """All documents, in memory; a look at each of them answers every question."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.documents, self.next = engine, dict[int, IndexedText](), 1

    def add(self, texts: list[list[str]], gap: int = 0) -> None:
        """Add documents, to the index as well."""
        self.next += gap
        scope = self.engine.scope
        made = [
            IndexedText(number, scope, number << 32 | 1, number % 7, 0, tuple(text))
            for number, text in enumerate(texts, self.next)
        ]
        self.next += len(made)
        self.documents |= {each.number: each for each in made}
        self.engine.write(lambda tx: self.engine.index.add(tx, made))

    def forget(self, numbers: list[int], *, for_good: bool) -> None:
        """Remove documents, or erase them."""
        index = self.engine.index
        remove = index.erase if for_good else index.remove
        while self.engine.write(lambda tx: remove(tx, self.engine.scope, numbers)):
            pass
        for number in numbers:
            self.documents.pop(number, None)

    def take(self, step: Step) -> None:
        """Add and forget what a step does."""
        if step.added:
            self.add(step.added, step.gap)
        if step.forgotten:
            self.forget([self.next - 1 - each for each in step.forgotten], for_good=step.for_good)

    def find(self, wanted: Wanted, within: Within, limit: int, counted: Sequence[TermRun]) -> list[Match]:
        """Return what an index must find."""
        found = list[Match]()
        for number in sorted(self.documents, reverse=True):
            document = self.documents[number]
            late = within.until_s is not None and document.at_s > within.until_s
            if within.low <= number <= within.high and not late and matches(wanted, document.terms):
                times = [count(words, document.terms) for words in counted]
                which = sum(1 << at for at, each in enumerate(times) if each)
                found.append(Match(number, document.key, document.at_s, 0, tally(sum(times), which)))
        return found[:limit]

    def words(self) -> set[str]:
        """Return all words of all documents."""
        return {term for each in self.documents.values() for term in each.terms if terms.is_word(term)}


def count(words: TermRun, text: Any) -> int:
    """Return in how many places of a text words follow one another."""
    *first, last = words.terms
    length = len(words.terms)
    found = 0
    for at in range(len(text) - length + 1):
        here = text[at + length - 1]
        ends = here.startswith(last) if words.open else here == last
        found += ends and list(text[at : at + length - 1]) == first
    return found


def matches(wanted: Wanted, text: Any) -> bool:
    """Whether a text has what is wanted."""
    match wanted:
        case TermRun():
            return count(wanted, text) > 0
        case All(parts):
            return all(matches(part, text) for part in parts)
        case Some(parts):
            return any(matches(part, text) for part in parts)
        case But(first, second):
            return matches(first, text) and not matches(second, text)
    raise AssertionError(wanted)


def leaves(wanted: Wanted) -> list[TermRun]:
    """Return the words that are looked for."""
    match wanted:
        case TermRun():
            return [wanted]
        case But(first, _):
            return leaves(first)
        case All(parts) | Some(parts):
            return [words for part in parts for words in leaves(part)]
    raise AssertionError(wanted)


# ---------------------------------------------------------------------- what is random


VOCABULARY = [
    *("a", "ab", "abc", "transaction", "transactions", "retransaction", "pool", "poolclose", "pooling"),
    *("日本", "本語", "語", "日記", "été", "ж", "wwwwwww", "1984", terms.field("kind", "call")),
]


def texts() -> st.SearchStrategy[list[str]]:
    """Texts of few terms, so that they meet; some go on repeating one."""
    few = st.lists(st.sampled_from(VOCABULARY), max_size=12)
    runs = st.tuples(st.sampled_from(VOCABULARY), st.integers(1, 6)).map(lambda each: [each[0]] * each[1])
    return st.one_of(few, few, st.tuples(few, runs, few).map(lambda each: [*each[0], *each[1], *each[2]]))


def phrases() -> st.SearchStrategy[TermRun]:
    """Words to look for: whole ones, beginnings, and some of either in a row."""
    beginnings = ["a", "t", "trans", "p", "日", "x", "w", "1"]
    whole = st.lists(st.sampled_from([*VOCABULARY, "nothing"]), min_size=1, max_size=3)
    begun = st.tuples(st.lists(st.sampled_from(VOCABULARY), max_size=2), st.sampled_from(beginnings))
    return st.one_of(
        whole.map(lambda found: TermRun((found[0],))),
        whole.map(lambda found: TermRun(tuple(found))),
        begun.map(lambda found: TermRun((*found[0], found[1]), open=True)),
    )


def questions() -> st.SearchStrategy[Wanted]:
    """Trees of words."""

    def larger(inner: st.SearchStrategy[Wanted]) -> st.SearchStrategy[Wanted]:
        several = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(several.map(All), several.map(Some), st.tuples(inner, inner).map(lambda two: But(*two)))

    return st.recursive(phrases(), larger, max_leaves=6)


class Step(NamedTuple):
    """Documents to add and to forget, then what to ask."""

    added: list[list[str]]
    gap: int
    forgotten: list[int]
    for_good: bool
    asked: list[Wanted]
    limit: int
    part: str


def steps() -> st.SearchStrategy[list[Step]]:
    """Some steps, of small additions mostly."""
    parts = ["tra", "ans", "sac", "ool", "poo", "www", "wwww", "198", "abc", "zzz", "transactio"]
    step = st.builds(
        Step,
        added=st.lists(texts(), max_size=9),
        gap=st.sampled_from([0, 0, 1, 5]),
        forgotten=st.lists(st.integers(0, 40), max_size=4),
        for_good=st.booleans(),
        asked=st.lists(questions(), min_size=1, max_size=3),
        limit=st.sampled_from([1, 3, 1000]),
        part=st.sampled_from(parts),
    )
    return st.lists(step, min_size=1, max_size=8)


def within(engine: Engine, model: Model, rng: random.Random) -> Within:
    """Return a range of numbers or of times, or none."""
    found = Within(engine.scope, unseen=True)
    if rng.random() < 0.5:
        return found
    return found._replace(low=rng.randrange(model.next), high=rng.randrange(model.next + 3))


# ---------------------------------------------------------------------- the tests


@pytest.mark.parametrize("read", ["at once", "bit by bit"])
def test_an_index_finds_what_is_there(
    engine: Callable[[], Engine],
    read: str,
    seed: int,
    counts: Callable[[int, int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if read == "bit by bit":  # as much is read, where there is much: one segment at a time, and beginnings within it
        for name, value in (("_SMALL", 8), ("_FIT", 3), ("_FIRST", 1), ("_MOST", 1)):
            monkeypatch.setattr(lookup, name, value)

    @seeded(seed)
    @settings(max_examples=counts(12, 1500), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(steps())
    def holds(steps: list[Step]) -> None:
        made, rng = engine(), random.Random(seed)
        model = Model(made)
        for step in steps:
            model.take(step)
            for wanted in step.asked:
                where, counted = within(made, model, rng), leaves(wanted)
                assert made.find(wanted, where, step.limit, counted) == model.find(wanted, where, step.limit, counted)
            expected = {word for word in model.words() if step.part in word and word != step.part}
            found = made.containing(step.part)
            assert expected <= set(found)
            assert all(step.part in word and word != step.part for word in found)
            assert found == sorted(found)
        assert made.check() == []

    holds()


def test_the_full_text_table_finds_the_same(seed: int, counts: Callable[[int, int], int]) -> None:
    """Places are only counted of what must match, as a search asks for it: FTS5 keeps none of a branch that failed."""

    @seeded(seed)
    @settings(max_examples=counts(25, 1500), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(steps())
    def holds(steps: list[Step]) -> None:
        with in_full_text() as engine:
            rng = random.Random(seed)
            made = engine()._replace(scope=rng.choice(["", "acme", "Ac Me"]))
            model = Model(made)
            for step in steps:
                model.take(step)
                for wanted in step.asked:
                    where, counted = within(made, model, rng), leaves(wanted)
                    sure = not isinstance(wanted, Some | But) and len(counted) == 1
                    found = made.find(wanted, where, step.limit, counted if sure else ())
                    assert found == model.find(wanted, where, step.limit, counted if sure else ())
                expected = [word for word in model.words() if step.part in word and word != step.part]
                assert {*expected} <= {*made.containing(step.part)}
            assert made.check() == []

    holds()


def test_what_may_not_be_seen_does_not_count(each_engine: Callable[[], Engine]) -> None:
    """A limit is filled with what may be seen, however much lies before it; times and places narrow it further."""
    made = each_engine()
    model = Model(made)
    model.add([["all", "odd" if number % 2 else "even"] for number in range(1, 1301)])
    seen = [number for number in model.documents if number % 100 < 2]
    rows = [(made.scope, number, 5, 9 if number > 900 else 0, 9, 5, 0) for number in seen]
    sql = "INSERT INTO search_place (scope, bid, sid, upto, whole, owner, other) VALUES (?, ?, ?, ?, ?, ?, ?)"
    made.write(lambda tx: [tx.run(sql, row) for row in rows])
    for where in (
        Within(made.scope),
        Within(made.scope, everywhere=True),
        Within(made.scope, until_s=3, everywhere=True),
    ):
        for limit in (1, 7, 100):
            found = [match.number for match in made.find(TermRun(("all",)), where, limit)]
            expected = [
                number
                for number in reversed(seen)
                if (where.everywhere or number > 900) and (where.until_s is None or number % 7 <= 3)
            ]
            assert found == expected[:limit]


def test_nothing_is_left_of_what_is_erased(engine: Callable[[], Engine]) -> None:
    """Not in any table, be it a word that only erased documents had, or the numbers of those."""
    made = engine()
    model = Model(made)
    for number in range(1, 60):
        model.add([["all", f"secret{number}", "shared" if number > 50 else "early", "x"]])
    model.forget([7, 8, 53], for_good=False)
    assert "secret7" in held(made)  # until something is erased, traces may stay
    model.forget([1, 20, *range(22, 30)], for_good=True)
    gone = {1, 7, 8, 20, *range(22, 30), 53}
    said = held(made)
    assert {number for number in range(1, 60) if re.search(rf"secret{number}\b", said)} == {*range(1, 60)} - gone
    rows = made.read(lambda tx: tx.all("SELECT docs FROM search_posting WHERE scope = ?", (made.scope,)))
    assert {number for (docs,) in rows for number in blocks.numbers(docs)} == {*range(1, 60)} - gone
    assert made.containing("secret") == sorted(f"secret{number}" for number in {*range(1, 60)} - gone)
    assert made.check() == []
    model.forget([*range(1, 60)], for_good=True)
    assert held(made) == ""


def test_what_was_removed_is_erased_later_too(engine: Callable[[], Engine]) -> None:
    """However often its segment became another one meanwhile."""
    made = engine()
    model = Model(made)
    model.add([["secret", "all"]])
    model.forget([1], for_good=False)
    for _ in range(40):
        model.add([["all"]])
    assert made.check() == []
    assert "secret" in held(made)
    model.forget([], for_good=True)
    assert "secret" not in held(made)
    assert made.check() == []


def held(made: Engine) -> str:
    """Return everything that can be read in the tables of terms."""
    found = list[str]()
    for sql in ("SELECT term FROM search_posting WHERE scope = ?", "SELECT words FROM search_gram WHERE scope = ?"):
        found += made.read(lambda tx: scalars(tx, sql, (made.scope,)))  # noqa: B023
    return " ".join(found)


def test_a_word_may_be_repeated_without_end(each_engine: Callable[[], Engine]) -> None:
    made = each_engine()
    model = Model(made)
    for times in (254, 255, 256, 1021):
        model.add([["la"] * times, ["la", "di"] * times])
    for wanted in (TermRun(("la",)), TermRun(("la", "la")), TermRun(("di", "la")), TermRun(("l",), open=True)):
        where = Within(made.scope, unseen=True)
        assert made.find(wanted, where, 100, [wanted]) == model.find(wanted, where, 100, [wanted])
    model.forget([2, 5, 7], for_good=True)
    assert made.find(TermRun(("la",)), where, 100, [TermRun(("la",))]) == model.find(
        TermRun(("la",)), where, 100, [TermRun(("la",))]
    )
    assert made.check() == []


def test_many_words_are_looked_for_at_once(each_engine: Callable[[], Engine]) -> None:
    made = each_engine()
    model = Model(made)
    model.add([[f"w{number}", "all"] for number in range(700)])
    wanted = Some(tuple(TermRun((f"w{number}",)) for number in range(0, 1400, 2)))
    where = Within(made.scope, unseen=True)
    assert made.find(wanted, where, 1000) == model.find(wanted, where, 1000, [])


def test_a_beginning_that_is_everywhere_leaves_no_segment_out(
    engine: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_FIT", 2)
    made = engine()
    model = Model(made)
    for number in range(30):
        model.add([["rare"] if number == 7 else [f"word{number}"]])
    wanted = Some((TermRun(("rare",)), TermRun(("wor",), open=True)))
    where = Within(made.scope, unseen=True)
    assert made.find(wanted, where, 100) == model.find(wanted, where, 100, [])


def test_scopes_share_nothing(engine: Callable[[], Engine]) -> None:
    one, two = engine(), engine()
    for made, word in ((one, "first"), (two, "second")):
        Model(made).add([[word, "both"]] * 5)
    where = Within(two.scope, unseen=True)
    assert len(two.find(TermRun(("both",)), where, 10)) == 5
    assert two.find(TermRun(("first",)), where, 10) == []
    assert two.containing("irs") == []
    one.write(lambda tx: one.index.clear(tx, one.scope))
    assert one.find(TermRun(("first",)), Within(one.scope, unseen=True), 10) == []
    assert held(one) == ""
    assert len(two.find(TermRun(("both",)), where, 10)) == 5


DAMAGE = {
    "UPDATE search_posting SET counts = docs": "counts other places",
    "UPDATE search_segment SET last = last + 100": "overlap",
    "DELETE FROM search_segment": "of no segment",
    "DELETE FROM search_doc": "other documents",
    "DELETE FROM search_posting": "other words by their parts",
    "UPDATE search_segment SET last = seg": "of another segment",
}


@pytest.mark.parametrize("sql", DAMAGE)
def test_a_check_sees_what_contradicts_itself(engine: Callable[[], Engine], sql: str) -> None:
    made = engine()
    model = Model(made)
    for number in range(13):
        model.add([["all", f"number{number}"]])
    assert made.check() == []
    made.write(lambda tx: tx.run(sql))
    assert any(DAMAGE[sql] in each for each in made.check())


@pytest.mark.parametrize("wanted", [TermRun(("all",)), TermRun(("all", "one"))])
def test_damage_is_never_an_answer(engine: Callable[[], Engine], wanted: TermRun) -> None:
    made = engine()
    Model(made).add([["all", "one"]])
    made.write(lambda tx: tx.run("UPDATE search_posting SET counts = docs"))
    with pytest.raises(Derived):
        made.find(wanted, Within(made.scope, unseen=True), 10)


def test_what_is_behind_a_beginning() -> None:
    assert lookup.behind("tra") == "trb"
    assert lookup.behind("a\ud7ff") == "a\ue000"
    assert lookup.behind("a\U0010ffff") == "b"


def test_segments_grow_in_steps() -> None:
    """As documents come one by one, eight segments of a size become one: few are written again, and few are left."""
    with on_sqlite() as made_:
        made, index, expected = made_(), Postings(8), list[int]()
        for number in range(1, 1100):
            document = IndexedText(number, "", number, 0, 0, ["all"])
            made.write(lambda tx: index.add(tx, [document]))  # noqa: B023
            sizes = made.read(lambda tx: scalars(tx, "SELECT size FROM search_segment ORDER BY seg"))
            expected.append(1)
            for size in (1, 8, 64, 512):
                if expected[-8:] == [size] * 8:
                    expected[-8:] = [8 * size]
            assert sizes == expected


@pytest.mark.parametrize("sizes", [(1, 20), (150, 1), (125, 300), (5, 600), (3, 3, 3, 15)])
def test_segments_stay_few_and_are_never_too_large(sizes: tuple[int, ...]) -> None:
    with on_sqlite() as made_:
        made, index, number = made_(), Postings(4), 1
        for turn in range(80):
            batch = [IndexedText(at, "", at, 0, 0, ["all"]) for at in range(number, number + sizes[turn % len(sizes)])]
            number += len(batch)
            made.write(lambda tx: index.add(tx, batch))  # noqa: B023
            found = made.read(lambda tx: scalars(tx, "SELECT size FROM search_segment"))
            assert max(found) <= 512
            assert len(found) < 4 * 4 + number / 128  # between two that are full a small one may stay
        assert sum(found) == number - 1
