"""P6: what it costs to search many messages, the best twenty with snippets, and what the index of that costs.

The limit is FTS5 alone over the same texts, in a file of its own, with the layout that suits each question best:
words as they are, trigrams for parts of words, Chinese and Japanese characters as words of their own. It gives row
numbers and snippets and checks nothing. Takeback's hits have passed the checksum of their record and the question of
what may be seen, and say session, reference and snippet. A word that is nearly everywhere is judged by time alone: its
limit ranks the newest matches only, as Takeback does, and a table of its own says what ranking all of them would cost.

Peers are what people do without an index: LIKE over the limit's table, and ripgrep (or grep) over the same texts as
files of a session each. Every question is asked of everybody in turns, and Takeback must find as much as the limit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple, TypeAlias

import apsw
import orjson

import takeback
from takeback.clock import SystemClock
from takeback.testing.clock import ManualClock

from . import search_texts as texts
from .common import Settings, median, say, show_bytes, show_ratio, show_time, steady
from .report import NONE, Check, Section, Table

TOP = 20
TIMES, SECONDS, INDEX = 1.5, 0.060, 0.6
RANKED = 2000  # of a word that is nearly everywhere, the newest matches that the limit ranks
EACH = 100  # messages of a session
_AGENTS, _WORKSPACES, _FEW, _HOUR = 10, 20, 5, 10  # the last agent has few sessions; an hour has so many
_APART_MS = 3_600_000 // _HOUR
_SLOW_EVERY = 5  # rounds
_CACHE_KIB = 16_384  # as Takeback's index has
_SNIPPET = "snippet({table}, 0, '«', '»', '…', 24)"
_SIGN = re.compile("([\u3040-\u30ff\u3400-\u9fff])")
_ROLES = ("user", "assistant")

FILE, LOG = "the file", "the log beside the file"
WORDS, PARTS, SIGNS = "words", "parts", "signs"  # the limit's layouts
EVERYTHING, SESSION, AGENT, SINCE = "", "one session", "an agent with few sessions", "the last hour"
RANK, WINDOW, NEWEST = "every match ranked", f"the newest {RANKED:,} matches ranked", f"the newest {TOP}, not ranked"
_GREPS = {
    "rg": ("--fixed-strings", "--ignore-case", "--no-filename", "--no-line-number", "--no-ignore", "--no-config", "-a"),
    "grep": ("-F", "-i", "-h", "-r", "-a"),
}
_LAYOUTS = {
    WORDS: ("message", "unicode61"),
    PARTS: ("message", "trigram"),
    SIGNS: ("spaced", "unicode61"),
}


class Question(NamedTuple):
    """What is asked: of Takeback, of FTS5, and the texts that a scan looks for, the rarest first."""

    name: str
    asked: str
    match: str
    looks: tuple[str, ...]
    layout: str = WORDS
    among: str = EVERYTHING
    order: str = RANK
    once: bool = False  # each session is one hit
    page: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether a scan can answer it."""
        return not self.once and self.page == 1


def _everywhere(name: str, **more: Any) -> Question:
    word = texts.EVERYWHERE
    return Question(f"very common word{name}", word, word, (word,), **{"order": WINDOW, **more})


_BOTH = f"{texts.EVERYWHERE} {texts.COMMON}"
_BEGINNING, _INSIDE = texts.COMMON[:6], texts.COMMON[1:-1]
_SPACED = " ".join(texts.CJK)
QUESTIONS = (
    Question("rare word", texts.RARE, texts.RARE, (texts.RARE,)),
    Question("common word", texts.COMMON, texts.COMMON, (texts.COMMON,)),
    Question("two words, one very common", _BOTH, _BOTH, (texts.COMMON, texts.EVERYWHERE)),
    Question("phrase", f'"{texts.PHRASE}"', f'"{texts.PHRASE}"', (texts.PHRASE,)),
    Question("beginning of a word", f"{_BEGINNING}*", f"{_BEGINNING}*", (_BEGINNING,)),
    Question("part of a word", _INSIDE, _INSIDE, (_INSIDE,), PARTS),
    Question("Chinese, 4 characters", texts.CJK_LONG, f'"{texts.CJK_LONG}"', (texts.CJK_LONG,), PARTS),
    Question("Chinese, 2 characters", texts.CJK, f'"{_SPACED}"', (texts.CJK,), SIGNS),
    Question("Chinese, 1 character", texts.CJK_COMMON, f'"{texts.CJK_COMMON}"', (texts.CJK_COMMON,), SIGNS),
    _everywhere(""),
    _everywhere(", second page", page=2),
    _everywhere(", each session once", once=True),
    *(_everywhere(f", in {among}", among=among) for among in (SESSION, AGENT, SINCE)),
)
WAYS = tuple(_everywhere(f": {order}", order=order) for order in (NEWEST, RANK))  # asked of the limit alone


class World(NamedTuple):
    """How much there is, and where filters point."""

    size: int
    began_ms: int

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return self.size // EACH

    def agent(self, session: int) -> str:
        """Name the agent of a session; the last agent has a few of them, here and there."""
        apart = max(2, self.sessions // _FEW)
        return f"agent {_AGENTS - 1 if session % apart == 1 else session % (_AGENTS - 1)}"

    def at_ms(self, session: int) -> int:
        """Return when all of a session was said."""
        return self.began_ms + session * _APART_MS

    def numbers(self, among: str) -> list[int]:
        """Return the sessions that a filter leaves, in order."""
        if among == SESSION:
            return [self.sessions // 2]
        if among == AGENT:
            return [number for number in range(self.sessions) if self.agent(number) == f"agent {_AGENTS - 1}"]
        return list(range(max(0, self.sessions - _HOUR) if among == SINCE else 0, self.sessions))


class Cost(NamedTuple):
    """What making an index took."""

    name: str
    cpu: float
    wall: float


class Arm(ABC):
    """Somebody who holds the texts and can be asked."""

    name: str
    slow = False  # few samples

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    def add(self, number: int, said: Sequence[str]) -> None:
        """Add a session."""

    def finish(self) -> list[Cost]:
        """Make what searching needs; return what that cost."""
        return []

    @abstractmethod
    def ask(self, question: Question) -> int:
        """Return how many hits came."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""


class Takeback(Arm):
    """This library; it is filled without a sync per commit, then indexes all of it at the first search."""

    name = "Takeback"

    def __init__(self, world: World, directory: Path) -> None:
        super().__init__(world)
        self._path, self._clock = directory / "store.db", ManualClock(world.began_ms)
        self._places = [directory / f"project-{number}" for number in range(_WORKSPACES)]
        for place in self._places:
            place.mkdir()
        self._ids, self._cursors = list[str](), dict[str, str]()
        self._open()

    def _open(self) -> None:
        self._store = takeback.open(self._path, durability="relaxed", clock=self._clock)

    def add(self, number: int, said: Sequence[str]) -> None:
        self._clock.ms = self.world.at_ms(number)
        place = self._places[number % _WORKSPACES]
        session = self._store.create_session(agent=self.world.agent(number), workspace=place)
        session.append(*({"role": _ROLES[at % 2], "content": text} for at, text in enumerate(said)))
        self._ids.append(session.id)

    def finish(self) -> list[Cost]:
        """Search, which indexes everything, then open anew, so that all of it lies in the file."""
        self.reopen()
        with timed("Takeback: words, parts of words, what may be seen") as costs:
            self._store.search(texts.RARE)
        self.reopen()
        return costs

    def reopen(self) -> None:
        """Close and open again."""
        self._store.close()
        self._open()

    def ask(self, question: Question) -> int:
        """Search; the cursor of a later page is known from the first time."""
        given: dict[str, Any] = {}
        if question.among == SESSION:
            given["session"] = self._ids[self.world.numbers(SESSION)[0]]
        elif question.among == AGENT:
            given["agent"] = f"agent {_AGENTS - 1}"
        elif question.among == SINCE:
            given["since"] = datetime.fromtimestamp(self.world.at_ms(self.world.numbers(SINCE)[0]) / 1000, UTC)
        if question.page > 1:
            if question.asked not in self._cursors:
                self._cursors[question.asked] = self._store.search(question.asked).cursor or ""
            given["cursor"] = self._cursors[question.asked]
        group = "session" if question.once else "message"
        found = self._store.search(question.asked, group=group, limit=TOP, **given)
        if not all("«" in hit.snippet for hit in found):
            raise RuntimeError(f"{question.name}: a snippet shows no match")
        return len(found)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the index's tables, of its file and of the log beside that."""
        self.reopen()
        index = self._path.with_name(f"{self._path.name}-search")
        log = index.with_name(f"{index.name}-wal")
        return {FILE: index.stat().st_size, LOG: log.stat().st_size if log.exists() else 0, **_pages(index)}

    def close(self) -> None:
        self._store.close()


class Limit(Arm):
    """FTS5 over a table of texts, once for each layout."""

    name = "limit"

    def __init__(self, world: World, directory: Path) -> None:
        super().__init__(world)
        self._path = directory / "limit.db"
        self.connection = apsw.Connection(str(self._path))
        for name, value in (("journal_mode", "off"), ("synchronous", "off"), ("cache_size", -_CACHE_KIB)):
            self.connection.pragma(name, value)
        self.connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, session INTEGER, text TEXT)")
        self.connection.execute("CREATE TABLE spaced (id INTEGER PRIMARY KEY, text TEXT)")
        self.connection.execute("CREATE TABLE session (low INTEGER PRIMARY KEY, high INTEGER, agent TEXT)")
        self.connection.execute("BEGIN")

    def add(self, number: int, said: Sequence[str]) -> None:
        """Add a session; texts with such signs are kept a second time, with a space around each sign."""
        low = number * EACH + 1
        rows = list(enumerate(said, low))
        session = (low, low + EACH - 1, self.world.agent(number))
        self.connection.execute("INSERT INTO session VALUES (?, ?, ?)", session)
        self.connection.executemany("INSERT INTO message VALUES (?, ?, ?)", ((at, number, text) for at, text in rows))
        spaced = [(at, _SIGN.sub(r" \1 ", text)) for at, text in rows if _SIGN.search(text)]
        self.connection.executemany("INSERT INTO spaced VALUES (?, ?)", spaced)

    def finish(self) -> list[Cost]:
        """Index the texts in each layout."""
        found = list[Cost]()
        execute = self.connection.execute
        execute("COMMIT; CREATE INDEX session_agent ON session (agent)")
        for table, (content, tokenizer) in _LAYOUTS.items():
            options = f"text, content='{content}', content_rowid='id', tokenize='{tokenizer}'"
            with timed(f"limit: {table} ({tokenizer})") as costs:
                execute(f"CREATE VIRTUAL TABLE {table} USING fts5({options})")
                execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")
            found += costs if table != SIGNS else []  # of few texts
        return found

    def ask(self, question: Question) -> int:
        low, high = _range(self.world.numbers(question.among))
        values = {"match": question.match, "low": low, "high": high, "agent": f"agent {_AGENTS - 1}"}
        values["skip"] = (question.page - 1) * TOP
        return len(self.connection.execute(_statement(question), values).fetchall())

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each layout."""
        return _pages(self._path)

    def close(self) -> None:
        self.connection.close()


def _statement(question: Question) -> str:
    """Write a question for FTS5."""
    table = question.layout
    snippet = _SNIPPET.format(table=table)
    shown = f"SELECT {table}.rowid, {snippet} FROM {table} WHERE {table} MATCH :match"
    if question.order != WINDOW:
        return f"{shown} ORDER BY {'rank' if question.order == RANK else 'rowid DESC'} LIMIT {TOP}"
    inner = f"SELECT {table}.rowid AS id, rank AS worth FROM {table} WHERE {table} MATCH :match"
    if question.among == AGENT:  # session by session: there are few
        places = f"session CROSS JOIN {table} ON {table}.rowid BETWEEN low AND high"
        inner = inner.replace(f"FROM {table}", f"FROM {places}") + " AND agent = :agent"
    elif question.among:
        inner += f" AND {table}.rowid BETWEEN :low AND :high"
    inner = f"{inner} ORDER BY {table}.rowid DESC LIMIT {RANKED}"
    if question.once:
        inner = f"SELECT id, min(worth) AS worth FROM ({inner}) GROUP BY (id - 1) / {EACH}"
    return f"{shown} AND rowid IN (SELECT id FROM ({inner}) ORDER BY worth LIMIT {TOP} OFFSET :skip)"


class Like(Arm):
    """A scan of the limit's table from the newest text on, until there are enough; nothing is ranked."""

    name = "LIKE"
    slow = True

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit.world)
        self._limit = limit

    def add(self, number: int, said: Sequence[str]) -> None:
        """The texts are there."""

    def ask(self, question: Question) -> int:
        low, high = _range(self.world.numbers(question.among))
        terms = " AND ".join(["text LIKE ?"] * len(question.looks))
        sql = f"SELECT id, session, text FROM message WHERE {terms} AND id BETWEEN ? AND ?"
        if question.among == AGENT:
            sql += f" AND session IN (SELECT (low - 1) / {EACH} FROM session WHERE agent = 'agent {_AGENTS - 1}')"
        values = (*(f"%{look}%" for look in question.looks), low, high)
        return len(self._limit.connection.execute(f"{sql} ORDER BY id DESC LIMIT {TOP}", values).fetchall())

    def close(self) -> None:
        """The limit closes the table."""


class Grep(Arm):
    """A program that reads files: a line for each message, a file for each session; every matching line comes."""

    slow = True

    def __init__(self, world: World, directory: Path, program: str) -> None:
        super().__init__(world)
        self.name, self._directory = program, directory

    def add(self, number: int, said: Sequence[str]) -> None:
        lines = (orjson.dumps({"role": _ROLES[at % 2], "content": text}) for at, text in enumerate(said))
        self._file(number).write_bytes(b"\n".join(lines) + b"\n")

    def _file(self, number: int) -> Path:
        return self._directory / f"{number:06}.jsonl"

    def ask(self, question: Question) -> int:
        where = map(self._file, self.world.numbers(question.among)) if question.among else [self._directory]
        first, *others = question.looks
        command = [self.name, *_GREPS[self.name], "-e", first, "--", *map(str, where)]
        found = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
        if found.returncode > 1:
            raise RuntimeError(f"{self.name} failed: {found.stderr.decode('utf-8', 'replace')[:200]}")
        if not others:
            return found.stdout.count(b"\n")
        return sum(all(each.encode() in line.lower() for each in others) for line in found.stdout.splitlines())

    def close(self) -> None:
        """Nothing is open."""


def _range(numbers: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last row of sessions."""
    return numbers[0] * EACH + 1, (numbers[-1] + 1) * EACH


def _pages(path: Path) -> dict[str, int]:
    """Return the bytes of the pages of each table, its indexes included."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        sql = """SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat s
        LEFT JOIN sqlite_schema m ON m.name = s.name WHERE s.aggregate = 1 GROUP BY 1"""
        return {str(name): int(size) for name, size in connection.execute(sql)}
    finally:
        connection.close()


@contextmanager
def timed(name: str) -> Iterator[list[Cost]]:
    """Add to a list what a block cost."""
    costs, cpu, wall = list[Cost](), process_time(), perf_counter()
    yield costs
    costs.append(Cost(name, process_time() - cpu, perf_counter() - wall))


# ---------------------------------------------------------------------- the run

Found: TypeAlias = dict[str, dict[str, list[float]]]


class Built(NamedTuple):
    """The arms, how many bytes of text each of them holds, and what making the indexes cost."""

    arms: list[Arm]
    size: int
    text: int
    costs: list[Cost]


def run(settings: Settings) -> Section:
    """Fill everybody with the same texts, ask in turns, then look at the sizes."""
    (size,) = settings.sizes((1_000_000,), (50_000,), (2_000,))
    world = World(size, SystemClock().now_ms() - size // EACH * _APART_MS)
    mine, limit = Takeback(world, settings.directory("p6")), Limit(world, settings.directory("p6", "limit"))
    program = next((name for name in _GREPS if shutil.which(name)), None)
    greps = [Grep(world, settings.directory("p6", "files"), program)] if program else []
    built = _build([mine, limit, Like(limit), *greps], world, settings.seed)
    try:
        found = _measure(settings, built.arms)
        sizes = mine.sizes(), limit.sizes()
    finally:
        for arm in built.arms:
            arm.close()
    from . import p6_postgres  # it asks the same questions

    section = _section(found, built, *sizes)
    section.tables += p6_postgres.measure(settings)
    return section


def _build(arms: list[Arm], world: World, seed: int) -> Built:
    started, text, source = perf_counter(), 0, texts.stream(world.size, seed)
    for number in range(world.sessions):
        said = list(islice(source, EACH))
        text += sum(len(each.encode()) for each in said)
        for arm in arms:
            arm.add(number, said)
    say(f"p6: {world.size:,} messages, {show_bytes(text)}, are there after {show_time(perf_counter() - started)}")
    costs = list[Cost]()
    for arm in arms:
        for cost in arm.finish():
            say(f"p6: {cost.name}: {show_time(cost.wall)}, {show_time(cost.cpu / world.size)} of CPU a message")
            costs.append(cost)
    return Built(arms, world.size, text, costs)


def _measure(settings: Settings, arms: list[Arm]) -> Found:
    """Ask in turns, the pairs of question and arm in a new order each time."""
    pairs = [(question, arm) for question in QUESTIONS for arm in arms if question.is_plain or not arm.slow]
    pairs += [(way, arm) for way in WAYS for arm in arms if isinstance(arm, Limit)]
    found: Found = {question.name: {} for question in (*QUESTIONS, *WAYS)}
    counts = {(question.name, arm.name): arm.ask(question) for question, arm in pairs}
    for question in QUESTIONS:
        mine, theirs = counts[question.name, Takeback.name], counts[question.name, Limit.name]
        if mine < theirs:  # it finds titles too
            raise RuntimeError(f"{question.name}: Takeback found {mine}, the limit {theirs}")
    with steady():
        for number in range(settings.pick(16, 10)):
            for question, arm in settings.rng.sample(pairs, len(pairs)):
                if not (arm.slow and number % _SLOW_EVERY):
                    times = found[question.name].setdefault(arm.name, [])
                    times += [_ask(arm, question) for _ in range(1 if arm.slow else 3)]
    for question in (*QUESTIONS, *WAYS):
        said = (f"{name} {show_time(median(times))}" for name, times in found[question.name].items())
        say(f"p6: {question.name}: {', '.join(said)}")
    return found


def _ask(arm: Arm, question: Question) -> float:
    started = perf_counter()
    arm.ask(question)
    return perf_counter() - started


# ---------------------------------------------------------------------- the page


def _section(found: Found, built: Built, mine: dict[str, int], limit: dict[str, int]) -> Section:
    questions, checks = _questions(found, built)
    costs, (sizes, size) = _costs(built), _sizes(built, mine, limit)
    return Section("Searching", [questions, _ways(found), costs, sizes], [*checks, size])


def _questions(found: Found, built: Built) -> tuple[Table, list[Check]]:
    peers = [arm.name for arm in built.arms if arm.slow]
    files = f"{peers[1]} gives every line that matches in files of {EACH} messages; " if peers[1:] else ""
    absent = "" if "rg" in peers else " Not on this machine, so not measured: ripgrep."
    text = (
        f"**What does it cost to find the best {TOP} of {built.size:,} messages ({show_bytes(built.text)} of text),"
        " each with a snippet?** Each cell is the median time of a question that was asked before. The limit is FTS5"
        " alone: row numbers and snippets from a table of texts, in the layout that suits the question (words, trigrams"
        " for parts of words, Chinese and Japanese characters as words of their own). Takeback does more for a hit: it"
        " checks the record's checksum and whether it may be seen, and returns its session, the reference to open it"
        " and the snippet; before that it asks whether anything is new. A rare word is in"
        f" {texts.RARE_TIMES} messages, a common one in each {texts.COMMON_EVERY:,}th, a very common one in about each"
        f" fourth; of that both rank only the newest {RANKED:,} matches, and time alone is judged. LIKE scans the"
        f" limit's table, newest first, and stops at {TOP}; {files}nothing is ranked there.{absent} Must reach: at most"
        f" {TIMES:g} times the limit, or at most {show_time(SECONDS)}."
    )
    table, checks = Table(text, ("question", "Takeback", "limit", "ratio", *peers)), list[Check]()
    ratios, slowest = dict[str, float](), dict[str, float]()
    for question in QUESTIONS:
        middle = {name: median(times) for name, times in found[question.name].items()}
        mine = middle[Takeback.name]
        ratio = mine / middle[Limit.name]
        cells = [show_time(middle[name]) if name in middle else NONE for name in peers]
        by_time = question.order == WINDOW
        must = f"at most {show_time(SECONDS)}" if by_time else f"at most {TIMES:g}"
        reached = mine <= SECONDS if by_time else ratio <= TIMES
        (slowest if by_time else ratios)[question.name] = mine if by_time else ratio
        table.add(question.name, show_time(mine), show_time(middle[Limit.name]), show_ratio(ratio), *cells,
                  must=must, reached=reached)  # fmt: skip
    worst, longest = max(ratios, key=ratios.__getitem__), max(slowest, key=slowest.__getitem__)
    measured, well = f"{show_ratio(ratios[worst])} at the worst question ({worst})", ratios[worst] <= TIMES
    checks.append(Check("search", measured, f"at most {TIMES:g} times FTS5 alone", well))
    measured, well = f"{show_time(slowest[longest])} at most ({longest})", slowest[longest] <= SECONDS
    checks.append(Check("search for a very common word", measured, f"at most {show_time(SECONDS)}", well))
    return table, checks


def _ways(found: Found) -> Table:
    text = (
        "**And what would it cost to rank every match of a word that is nearly everywhere?** FTS5 alone, the same word:"
        f" the newest {TOP} as they come, the newest {RANKED:,} ranked, or all of them by bm25. Even for a few it first"
        " counts all the matches of the word, and the limit above does so under a filter too. Not judged."
    )
    table, everywhere = Table(text, ("what comes", "FTS5 alone")), QUESTIONS[[q.order for q in QUESTIONS].index(WINDOW)]
    for question, what in ((WAYS[0], NEWEST), (everywhere, WINDOW), (WAYS[1], RANK)):
        table.add(what, show_time(median(found[question.name][Limit.name])))
    return table


def _costs(built: Built) -> Table:
    text = (
        f"**What does indexing cost?** All {built.size:,} messages at once. Takeback reads them from the store through"
        " its feed, checks each record, and commits a batch at a time; FTS5 alone is told to index a table, without a"
        " log. An append never waits for either: the first search behind it indexes what is new. Not judged."
    )
    table = Table(text, ("index", "CPU per message", "time per message", "all of them"))
    for cost in built.costs:
        each = show_time(cost.cpu / built.size), show_time(cost.wall / built.size)
        table.add(cost.name, *each, show_time(cost.wall))
    return table


def _sizes(built: Built, mine: dict[str, int], limit: dict[str, int]) -> tuple[Table, Check]:
    text = (
        "**And how large is it?** Pages by table, what is still in the log included, then the files once the store was"
        f" closed; all as a share of the text (UTF-8). Must reach: the words at most {INDEX:g} of the text."
    )
    table = Table(text, ("part", "bytes", "of the text"))

    def total(sizes: dict[str, int], *begins: str) -> int:
        return sum(size for name, size in sizes.items() if name.startswith(begins))

    words = total(mine, "found")
    rows = {
        "Takeback: words": words,
        "Takeback: list of messages and what may be seen": total(mine, "search_"),
        "Takeback: parts of words": total(mine, "word", "part"),
        f"Takeback: {FILE}": mine[FILE],
        f"Takeback: {LOG}": mine[LOG],
        **{f"limit: {name}": total(limit, f"{name}_") for name in (WORDS, PARTS)},
    }
    for name, size in rows.items():
        judged = size / built.text <= INDEX if name == "Takeback: words" else None
        must = NONE if judged is None else f"at most {INDEX:g}"
        table.add(name, show_bytes(size), f"{size / built.text:.2f}", must=must, reached=judged)
    share = words / built.text
    return table, Check("search: index of words", f"{share:.2f} of the text", f"at most {INDEX:g}", share <= INDEX)
