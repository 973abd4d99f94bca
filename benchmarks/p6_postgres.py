"""P6 on PostgreSQL: the same questions of a smaller store, next to the server's own full-text search.

The limit is a ``tsvector`` column with a GIN index, asked without row security by one tenant alone, with headlines for
the best twenty. Takeback asks as a role that row security binds, so that index would be of no use to it (ADR 0032). No
figure is judged: there is no promise for it. The server does not sync, since only the index is of interest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter

import psycopg

import takeback
from takeback.clock import SystemClock
from takeback.testing import postgres

from . import search_texts as texts
from .common import Settings, median, say, show_bytes, show_ratio, show_time, steady
from .p6_search import EACH, QUESTIONS, RANKED, TOP, WINDOW, WORDS, Cost, Question, Takeback, World, timed
from .report import NONE, Table

_ROLE = "reader"
_PLAIN = [each for each in QUESTIONS if each.is_plain and not each.among]
_SIZES = """SELECT relname, pg_table_size(oid) + pg_indexes_size(oid) FROM pg_class
WHERE relkind = 'r' AND relname LIKE 'search%'"""


class OnServer(Takeback):
    """Takeback on a server; the role can neither make tables nor see through row security."""

    def __init__(self, world: World, directory: Path, url: str) -> None:
        self._url = url
        super().__init__(world, directory)

    def _open(self) -> None:
        self._store = takeback.open(self._url, durability="relaxed", clock=self._clock)


class TextSearch:
    """The server's own search: a table of texts with their vectors."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("CREATE TABLE message (id int PRIMARY KEY, text text)")

    def add(self, number: int, said: Sequence[str]) -> None:
        """Add a session."""
        with self._connection.cursor() as cursor, cursor.copy("COPY message FROM STDIN") as copy:
            for at, text in enumerate(said, number * EACH + 1):
                copy.write_row((at, text.replace("\0", "")))

    def finish(self) -> list[Cost]:
        """Make the vectors and their index."""
        with timed("limit: tsvector and GIN") as costs:
            self._connection.execute(
                "ALTER TABLE message ADD found tsvector GENERATED ALWAYS AS (to_tsvector('simple', text)) STORED"
            )
            self._connection.execute("CREATE INDEX message_found ON message USING gin (found)")
        self._connection.execute("ANALYZE message")
        return costs

    def ask(self, question: Question) -> int:
        """Rank as the other limit does, and write headlines for the best."""
        asked = "to_tsquery('simple', %(asked)s)" if question.match.endswith("*") else (
            "phraseto_tsquery('simple', %(asked)s)" if question.match.startswith('"') else
            "plainto_tsquery('simple', %(asked)s)"
        )  # fmt: skip
        newest = f"ORDER BY id DESC LIMIT {RANKED}" if question.order == WINDOW else ""
        sql = f"""SELECT id, ts_headline('simple', text, {asked}) FROM
(SELECT id, text FROM (SELECT id, text, found FROM message WHERE found @@ {asked} {newest}) matching
ORDER BY ts_rank(found, {asked}) DESC, id DESC LIMIT {TOP}) best"""
        return len(self._connection.execute(sql, {"asked": question.match.replace("*", ":*")}).fetchall())

    def size(self) -> int:
        """Return the bytes of the vectors and of their index."""
        sql = "SELECT pg_relation_size('message_found') + (SELECT sum(pg_column_size(found)) FROM message)"
        row = self._connection.execute(sql).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def measure(settings: Settings) -> list[Table]:
    """Fill both, ask in turns, look at the sizes."""
    (size,) = settings.sizes((100_000,), (20_000,), (1_000,))
    world = World(size, SystemClock().now_ms() - size // EACH * 360_000)
    settings.scratch.chmod(0o755)  # the server is another user if we are root
    with postgres.start(settings.scratch) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {_ROLE} LOGIN")
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        takeback.migrate(server.dsn(), grant_to=_ROLE)
        mine, limit = OnServer(world, settings.directory("p6pg"), server.dsn(user=_ROLE)), TextSearch(server.dsn())
        try:
            text = _fill(world, settings.seed, mine.add, limit.add)
            costs = [*mine.finish(), *limit.finish()]
            found = _ask(settings, mine.ask, limit.ask)
            return [_questions(size, text, found), _costs(size, text, costs, _index_size(server), limit.size())]
        finally:
            mine.close()
            limit.close()


def _fill(world: World, seed: int, *adds: Callable[[int, Sequence[str]], None]) -> int:
    text, source = 0, texts.stream(world.size, seed)
    for number in range(world.sessions):
        said = list(islice(source, EACH))
        text += sum(len(each.encode()) for each in said)
        for add in adds:
            add(number, said)
    return text


def _ask(settings: Settings, *asks: Callable[[Question], int]) -> dict[str, list[list[float]]]:
    found = {question.name: [list[float]() for _ in asks] for question in _PLAIN}
    pairs = [(question, at) for question in _PLAIN for at in range(len(asks)) if not at or question.layout == WORDS]
    for question, at in pairs:
        asks[at](question)
    with steady():
        for _ in range(settings.pick(15, 10)):
            for question, at in settings.rng.sample(pairs, len(pairs)):
                started = perf_counter()
                asks[at](question)
                found[question.name][at].append(perf_counter() - started)
    return found


def _index_size(server: postgres.Server) -> int:
    with psycopg.connect(server.dsn()) as connection:
        return sum(int(size) for _, size in connection.execute(_SIZES))


def _questions(size: int, text: int, found: dict[str, list[list[float]]]) -> Table:
    table = Table(
        f"**And on PostgreSQL?** The same questions of {size:,} messages ({show_bytes(text)} of text), by a role that"
        " row security binds, next to the server's own full-text search (`tsvector` and GIN, without row security, the"
        f" best {TOP} with headlines), which has no words for Chinese and none for parts of words. Not judged.",
        ("question", "Takeback", "tsvector", "ratio"),
    )
    for question in _PLAIN:
        mine, theirs = found[question.name]
        cells = (show_time(median(theirs)), show_ratio(median(mine) / median(theirs))) if theirs else (NONE, NONE)
        table.add(question.name, show_time(median(mine)), *cells)
        say(f"p6 on PostgreSQL: {question.name}: {show_time(median(mine))}, limit {cells[0]}")
    return table


def _costs(size: int, text: int, costs: Sequence[Cost], mine: int, theirs: int) -> Table:
    table = Table(
        "**What does that index cost?** All of it at once, then the bytes of its tables and their indexes as they are"
        " right after, before any vacuum. Not judged.",
        ("index", "time per message", "all of them", "bytes", "of the text"),
    )
    for cost, bytes_ in zip(costs, (mine, theirs), strict=True):
        each = show_time(cost.wall / size), show_time(cost.wall)
        table.add(cost.name, *each, show_bytes(bytes_), f"{bytes_ / text:.2f}")
    return table
