"""The index in tables of a server: where each term is, in blocks, a segment of documents at a time.

Each ``add`` makes a segment. Once eight of a size lie behind one another they become one, up to some thousands of
documents, so small additions stay cheap and a term has few rows. A segment is called by a number at or below that of
its first document and above all before, so their order is that of time. Larger segments have their words a second time,
by their trigrams, which find the words with a part in them; of the small ones the words themselves are looked at.

Row security lets only operators that reveal nothing reach an index: every statement finds its rows by equality, or by
the range of terms with one beginning.

Segments do not overlap, and a document is found only while ``search_doc`` has it: ``remove`` deletes that row and
counts what is ``gone`` from a segment, ``erase`` also writes such segments anew. What was deleted stays in the server's
files until it vacuums the tables, and in its log and backups as long as those are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..storage.base import Tx, Value, scalar, scalars
from ..tables import search as tables
from ..tables.table import several, slots
from . import blocks, places, terms
from .blocks import Block
from .index import MANY, IndexedText, Match, TermRun, Wanted, Within, padded
from .lookup import BlockHere, Lookup

FAN = 8  # segments of a level that become one
LEVELS = 4  # a segment of this level does not grow any more
WITH_GRAMS = 2  # the level from which a segment has its trigrams
SWEPT = 16  # segments that one call writes anew
CHECKED = 24  # segments that a check reads: more would take longer than a call may
SHORTEST = 4  # characters of a word with a part of three in it
_NO_WORDS = "\u0590"  # terms from here on are pairs of characters, or fields

_SEGMENTS = "SELECT seg, last, size, gone, level FROM search_segment WHERE scope = ?"
_POSTINGS = "SELECT term, docs, counts, places FROM search_posting WHERE scope = ? AND seg = ?"
_JOIN = f"""WITH old AS (DELETE FROM search_posting WHERE scope = ? AND seg >= ? AND seg <= ?
RETURNING term, seg, docs, counts, places)
{tables.into("search_posting")}
SELECT ?, term, ?, string_agg(docs, ''::bytea ORDER BY seg), string_agg(counts, ''::bytea ORDER BY seg),
string_agg(places, ''::bytea ORDER BY seg) FROM old GROUP BY term"""
_GRAMS = f"""{tables.into("search_gram")}
SELECT p.scope, substr(p.term, g.at, 3), p.seg, string_agg(DISTINCT p.term, ' ')
FROM search_posting p CROSS JOIN LATERAL generate_series(1, length(p.term) - 2) g (at)
WHERE p.scope = ? AND p.seg = ? AND p.term < ? AND length(p.term) >= {SHORTEST}
GROUP BY p.scope, substr(p.term, g.at, 3), p.seg"""
_DOCUMENTS = """SELECT number, key, at_s, kind FROM search_doc
WHERE scope = ? AND number IN ({}) AND at_s >= ? AND at_s <= ?"""
_EVER = 1 << 62  # seconds
_HAVING = "SELECT term FROM search_posting WHERE scope = ? AND seg IN ({}) AND instr(term, ?) > 0"
_SIZES = "SELECT gram, octet_length(words) FROM search_gram WHERE scope = ? AND gram IN ({})"
# Seconds for each step of an addition or an erasure, in place of a call's: an entry may have a million different words,
# and eight segments of such become one.
STEP_S = 300.0


class IndexSegment(NamedTuple):
    """A run of documents: ``size`` of them, of which ``gone`` were removed."""

    seg: int
    last: int
    size: int
    gone: int
    level: int


class Postings:
    """The engine for PostgreSQL. Whoever adds or removes holds the lock of the scope's index."""

    def __init__(self, fan: int = FAN) -> None:
        self._fan = fan
        self._largest = 2 * fan**LEVELS  # documents of a segment

    # ------------------------------------------------------------------ adding

    def add(self, tx: Tx, documents: Sequence[IndexedText]) -> None:
        """Add documents of one scope, with ascending numbers that are higher than all before."""
        for some in several(documents, self._largest):
            scope = some[0].scope
            tx.take_time(STEP_S)
            rows = [(doc.scope, doc.number, doc.key, doc.at_s, doc.kind) for doc in some]
            _insert(tx, "search_doc", rows)
            made = IndexSegment(some[0].number, some[-1].number, len(some), 0, self._level_of(len(some)))
            _put_blocks(tx, scope, made.seg, blocks.made(some))
            _put_segment(tx, scope, made)
            if made.level >= WITH_GRAMS:
                _add_grams(tx, scope, made.seg)
            self._join_newest(tx, scope)

    def _level_of(self, size: int) -> int:
        return next((level for level in range(LEVELS) if size < self._fan ** (level + 1)), LEVELS)

    def _join_newest(self, tx: Tx, scope: str) -> None:
        """Let the newest segments become one, wherever there are enough of a level."""
        rows = tx.all(f"{_SEGMENTS} ORDER BY seg DESC LIMIT ?", (scope, LEVELS * self._fan))
        newest = [IndexSegment(*row) for row in rows]
        for level in range(LEVELS):
            count = next((at for at, each in enumerate(newest) if each.level > level), len(newest))
            alike = sum(each.level == level for each in newest[:count])
            if alike >= self._fan or count >= self._fan * (level + 1):
                runs = self._runs(newest[count - 1 :: -1])
                newest[:count] = reversed([self._joined(tx, scope, run) for run in runs])

    def _runs(self, oldest_first: Sequence[IndexSegment]) -> list[list[IndexSegment]]:
        """Split segments into those that become one each, of which none gets too large."""
        found, size = list[list[IndexSegment]](), 0
        for each in oldest_first:
            if found and size + each.size <= self._largest:
                found[-1].append(each)
                size += each.size
            else:
                found.append([each])
                size = each.size
        return found

    def _joined(self, tx: Tx, scope: str, run: Sequence[IndexSegment]) -> IndexSegment:
        """Let segments that follow one another become one."""
        if len(run) == 1:
            return run[0]
        tx.take_time(STEP_S)
        size, gone = sum(each.size for each in run), sum(each.gone for each in run)
        made = IndexSegment(run[0].seg, run[-1].last, size, gone, self._level_of(size))
        _join_blocks(tx, scope, run)
        _delete(tx, "search_gram", scope, run)
        _delete(tx, "search_segment", scope, run)
        _put_segment(tx, scope, made)
        if made.level >= WITH_GRAMS:
            _add_grams(tx, scope, made.seg)
        return made

    # ------------------------------------------------------------------ removing and erasing

    def remove(self, tx: Tx, scope: str, numbers: Sequence[int]) -> None:
        """Remove documents, so that nothing of them is found; traces of them may stay in the tables."""
        found = list[int]()
        for some in several(sorted(numbers), MANY):
            asked = padded(some)
            sql = f"DELETE FROM search_doc WHERE scope = ? AND number IN ({slots(len(asked))}) RETURNING number"
            found += scalars(tx, sql, (scope, *asked))
        if not found:
            return
        starts = scalars(tx, "SELECT seg FROM search_segment WHERE scope = ? ORDER BY seg", (scope,))
        for at, count in Counter(bisect_right(starts, number) - 1 for number in found).items():
            if at >= 0:
                sql = "UPDATE search_segment SET gone = gone + ? WHERE scope = ? AND seg = ?"
                tx.run(sql, (count, scope, starts[at]))

    def erase(self, tx: Tx, scope: str, numbers: Sequence[int]) -> bool:
        """Remove documents, so that nothing of them is left that anybody could read, nor of those removed before.

        Returns whether there is more to erase, since only some segments are written anew at a time. The server's files
        have it until it vacuums the tables: by itself, or when somebody tells it to.
        """
        self.remove(tx, scope, numbers)
        rows = tx.all(f"{_SEGMENTS} AND gone > 0 ORDER BY seg LIMIT ?", (scope, SWEPT + 1))
        for row in rows[:SWEPT]:
            _sweep(tx, scope, IndexSegment(*row))
        return len(rows) > SWEPT

    def clear(self, tx: Tx, scope: str) -> None:
        """Delete everything of a scope."""
        tx.lock(f"search:{scope}")
        for name in tables.NAMES:
            tx.run(f"DELETE FROM {name} WHERE scope = ?", (scope,))

    # ------------------------------------------------------------------ finding

    def find(self, tx: Tx, wanted: Wanted, within: Within, limit: int, counted: Sequence[TermRun] = ()) -> list[Match]:
        """Return the matches with the highest numbers, in descending order."""
        found, waiting, most = list[Match](), dict[int, BlockHere](), max(16, min(limit, MANY))
        for doc, here in Lookup(tx, wanted, within, counted).walk():
            waiting[doc] = here
            if len(waiting) >= most:
                found += _seen(tx, within, waiting)
                if len(found) >= limit:
                    break
                waiting, most = {}, min(2 * most, MANY)
        else:
            found += _seen(tx, within, waiting) if waiting else []
        return found[:limit]

    def containing(self, tx: Tx, scope: str, part: str, most: int) -> list[str]:
        """Return up to ``most`` words with a part of at least three characters inside, in order; not that word itself.

        Words that no document has any more may be among them.
        """
        found = set[str]()
        if (rarest := _rarest(tx, scope, part)) is not None:
            for words in scalars(tx, "SELECT words FROM search_gram WHERE scope = ? AND gram = ?", (scope, rarest)):
                found.update(words.split(" "))
        small = scalars(tx, "SELECT seg FROM search_segment WHERE scope = ? AND level < ?", (scope, WITH_GRAMS))
        for some in several(small, MANY):
            asked = padded(some)
            found.update(scalars(tx, _HAVING.format(slots(len(asked))), (scope, *asked, part)))
        return sorted(word for word in found if part in word and word != part and terms.is_word(word))[:most]

    # ------------------------------------------------------------------ checking

    def check(self, tx: Tx, scope: str) -> list[str]:
        """Return what is wrong with the tables, as far as they show it themselves; changes nothing.

        Of all segments it is looked whether they are there, of the newest ones at all that they hold.
        """
        found = [IndexSegment(*row) for row in tx.all(f"{_SEGMENTS} ORDER BY seg", (scope,))]
        said = [f"segment {each.seg} ends before it begins" for each in found if each.last < each.seg]
        said += [f"segments {one.seg} and {two.seg} overlap" for one, two in pairwise(found) if one.last >= two.seg]
        for name in ("search_posting", "search_gram"):
            strange = set(_segments_of(tx, scope, name)) - {each.seg for each in found}
            said += [f"{name} has rows of no segment: {seg}" for seg in sorted(strange)]
        for each in found[-CHECKED:]:
            said += _problems(tx, scope, each)
        (count,) = scalars(tx, "SELECT count(*) FROM search_doc WHERE scope = ?", (scope,))
        if count != (listed := sum(each.size - each.gone for each in found)):
            said.append(f"{count:,} documents are listed, but segments have {listed:,}")
        return said


# ---------------------------------------------------------------------- rows


def _insert(tx: Tx, table: str, rows: Sequence[tuple[Value, ...]]) -> None:
    """Insert rows: many with one statement, in numbers that are powers of two, so that statements are few."""
    at, count = 0, 256
    while at < len(rows):
        while count > len(rows) - at:
            count //= 2
        some = rows[at : at + count]
        tx.run(tables.insert(table, count), [value for row in some for value in row])
        at += count


def _put_blocks(tx: Tx, scope: str, seg: int, found: Mapping[str, Block]) -> None:
    rows = [(scope, term, seg, *block) for term, block in found.items()]
    _insert(tx, "search_posting", rows)


def _put_segment(tx: Tx, scope: str, made: IndexSegment) -> None:
    _insert(tx, "search_segment", [(scope, *made)])


def _seen(tx: Tx, within: Within, waiting: Mapping[int, BlockHere]) -> list[Match]:
    """Return those of some documents that may be shown, in their order.

    That is what ``places.seen`` says, in two steps: under row security only a plain comparison leads from one table to
    another by an index, and the branch of a document is computed.
    """
    times = -_EVER if within.since_s is None else within.since_s, _EVER if within.until_s is None else within.until_s
    asked = padded(list(waiting))
    rows = tx.all(_DOCUMENTS.format(slots(len(asked))), (within.scope, *asked, *times))
    ends = {} if within.unseen else _ends(tx, within, {key >> 32 for _, key, _, _ in rows})
    found = {
        number: (key, at_s, kind)
        for number, key, at_s, kind in rows
        if within.unseen or ends.get(key >> 32, -1) >= key & 0xFFFFFFFF
    }
    return [Match(doc, *found[doc], here.count(doc)) for doc, here in waiting.items() if doc in found]


def _ends(tx: Tx, within: Within, branches: Iterable[int]) -> dict[int, int]:
    """Return how far branches may be seen."""
    found = places.readers(tx, within, branches)
    return {bid: max(upto for _, upto in readers) for bid, readers in found.items() if readers}


def _join_blocks(tx: Tx, scope: str, run: Sequence[IndexSegment]) -> None:
    """Put the blocks of segments that follow one another behind each other, in the first of them."""
    if tx.dialect.name == "postgresql":
        tx.run(_JOIN, (scope, run[0].seg, run[-1].seg, scope, run[0].seg))
        return
    found = dict[str, list[Block]]()
    for each in run:
        for term, *block in tx.all(_POSTINGS, (scope, each.seg)):
            found.setdefault(term, []).append(Block(*block))
    _delete(tx, "search_posting", scope, run)
    _put_blocks(tx, scope, run[0].seg, {term: blocks.joined(each) for term, each in found.items()})


def _delete(tx: Tx, name: str, scope: str, run: Sequence[IndexSegment]) -> None:
    """Delete the rows of segments that follow one another."""
    tx.run(f"DELETE FROM {name} WHERE scope = ? AND seg >= ? AND seg <= ?", (scope, run[0].seg, run[-1].seg))


# ---------------------------------------------------------------------- words by their trigrams


def _grams(word: str) -> list[str]:
    return [word[at : at + 3] for at in range(len(word) - 2)]


def _has_grams(term: str) -> bool:
    return len(term) >= SHORTEST and terms.is_word(term)


def _by_gram(words: Iterable[str]) -> dict[str, set[str]]:
    found = dict[str, set[str]]()
    for word in words:
        for gram in _grams(word):
            found.setdefault(gram, set()).add(word)
    return found


def _add_grams(tx: Tx, scope: str, seg: int) -> None:
    """Keep the words of a segment by their trigrams."""
    if tx.dialect.name == "postgresql":
        tx.run(_GRAMS, (scope, seg, _NO_WORDS))
        return
    words = scalars(tx, "SELECT term FROM search_posting WHERE scope = ? AND seg = ?", (scope, seg))
    _put_grams(tx, scope, seg, _by_gram(filter(_has_grams, words)))


def _put_grams(tx: Tx, scope: str, seg: int, found: Mapping[str, Iterable[str]]) -> None:
    rows = [(scope, gram, seg, " ".join(sorted(words))) for gram, words in sorted(found.items())]
    _insert(tx, "search_gram", rows)


def _rarest(tx: Tx, scope: str, part: str) -> str | None:
    """Return the trigram of a part that the fewest words have; None if the larger segments have none of them."""
    if not (grams := _grams(part)):
        return None
    sizes, asked = Counter[str](), padded(grams)
    for gram, size in tx.all(_SIZES.format(slots(len(asked))), (scope, *asked)):
        sizes[gram] += size
    return min(sizes, key=lambda gram: sizes[gram]) if len(sizes) == len(set(grams)) else None


# ---------------------------------------------------------------------- what is erased


def _sweep(tx: Tx, scope: str, segment: IndexSegment) -> None:
    """Write a segment anew, with those of its documents that are left."""
    tx.take_time(STEP_S)
    sql = "SELECT number FROM search_doc WHERE scope = ? AND number >= ? AND number <= ?"
    alive = set(scalars(tx, sql, (scope, segment.seg, segment.last)))
    if not alive:
        for name in tables.POSTINGS:
            _delete(tx, name, scope, [segment])
        return
    rows = tx.all("SELECT term, docs FROM search_posting WHERE scope = ? AND seg = ?", (scope, segment.seg))
    touched = sorted(term for term, docs in rows if not alive.issuperset(blocks.numbers(docs)))
    gone = list[str]()
    for some in several(touched, MANY):
        asked = padded(some)
        which = f" AND term IN ({slots(len(asked))})"
        left = {
            term: blocks.kept(Block(*block), alive)
            for term, *block in tx.all(f"{_POSTINGS}{which}", (scope, segment.seg, *asked))
        }
        tx.run(f"DELETE FROM search_posting WHERE scope = ? AND seg = ?{which}", (scope, segment.seg, *asked))
        _put_blocks(tx, scope, segment.seg, {term: block for term, block in left.items() if block.docs})
        gone += [term for term, block in left.items() if not block.docs]
    if segment.level >= WITH_GRAMS:
        _forget_words(tx, scope, segment.seg, {term for term in gone if _has_grams(term)})
    sql = "UPDATE search_segment SET size = ?, gone = 0 WHERE scope = ? AND seg = ?"
    tx.run(sql, (len(alive), scope, segment.seg))


def _forget_words(tx: Tx, scope: str, seg: int, words: set[str]) -> None:
    """Take words that no document has any more out of the trigrams of a segment."""
    for some in several(sorted(_by_gram(words)), MANY):
        asked = padded(some)
        which = f"WHERE scope = ? AND seg = ? AND gram IN ({slots(len(asked))})"
        rows = tx.all(f"SELECT gram, words FROM search_gram {which}", (scope, seg, *asked))
        tx.run(f"DELETE FROM search_gram {which}", (scope, seg, *asked))
        left = {gram: set(said.split(" ")) - words for gram, said in rows}
        _put_grams(tx, scope, seg, {gram: each for gram, each in left.items() if each})


# ---------------------------------------------------------------------- health


def _segments_of(tx: Tx, scope: str, name: str) -> Iterator[int]:
    """Yield the segments that have rows in a table, with a look at one row of each."""
    seg = -1
    while (seg := scalar(tx, f"SELECT min(seg) FROM {name} WHERE scope = ? AND seg > ?", (scope, seg))) is not None:
        yield seg


def _problems(tx: Tx, scope: str, segment: IndexSegment) -> list[str]:
    """Return what is wrong with one segment."""
    said, docs, words = list[str](), set[int](), set[str]()
    for term, *stored in tx.all(_POSTINGS, (scope, segment.seg)):
        if wrong := blocks.problem(block := Block(*stored), segment.seg, segment.last):
            said.append(f"segment {segment.seg}, {term!r}: {wrong}")
            continue
        docs.update(blocks.numbers(block.docs))
        if _has_grams(term):
            words.add(term)
    sql = "SELECT number FROM search_doc WHERE scope = ? AND number >= ? AND number <= ?"
    alive = set(scalars(tx, sql, (scope, segment.seg, segment.last)))
    if len(alive) != segment.size - segment.gone:
        said.append(f"segment {segment.seg} counts other documents than are listed")
    if not segment.gone and docs - alive:
        said.append(f"segment {segment.seg} has documents that are not listed")
    rows = tx.all("SELECT gram, words FROM search_gram WHERE scope = ? AND seg = ?", (scope, segment.seg))
    expected = _by_gram(words) if segment.level >= WITH_GRAMS else {}
    if not said and {gram: set(each.split(" ")) for gram, each in rows} != expected:
        said.append(f"segment {segment.seg} has other words by their parts than it has")
    return said
