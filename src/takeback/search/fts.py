"""The index as an FTS5 table, in a file beside a SQLite store.

The table holds no text, only terms: what is found is read from the store. Its rows are walked from the newest on, so a
word that is everywhere costs what is looked at, not what matches. Words are kept a second time, each once, in a table
of their trigrams, which finds the words that have a part in them.

The file has the documents of all scopes, and every term and trigram begins with its scope. So what another scope stores
is never looked at: it changes neither what is found here nor what that costs.

Erasing marks a document as deleted, then merges the whole table into one segment, which leaves out what is marked, and
then drops every word that no document has any more and makes the table of their trigrams anew; freed pages are
overwritten. That costs what the index is large, and only a purge or a redaction asks for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..storage.base import Derived, Row, Tx, Value, scalars
from ..tables import search as tables
from ..tables.table import several, slots
from . import places, terms
from .index import All, But, IndexedText, Match, Some, TermRun, Wanted, Within, tally

_MORE = {"search_doc": ("nth INTEGER",)}
_TABLES = "\n".join(
    f"CREATE TABLE {name} ({', '.join((*columns, *_MORE.get(name, ())))}, PRIMARY KEY ({key})) WITHOUT ROWID;"
    for name, (columns, key) in places.TABLES.items()
)
# ``ascii`` splits at what is neither letter, digit nor beyond ASCII, and terms hold nothing else. Numbers are those of
# the whole file; ``nth`` says how many documents the scope had by then.
SQL = f"""{_TABLES}
CREATE INDEX search_place_sid ON search_place (scope, sid);
CREATE INDEX search_place_other ON search_place (scope, sid) WHERE other = 1;
CREATE VIRTUAL TABLE found USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE used USING fts5vocab(found, row);
CREATE TABLE word (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE part USING fts5(grams, content='', tokenize='ascii', detail=none, columnsize=0);
INSERT INTO part(part, rank) VALUES('secure-delete', 1);
"""
VERSION = zlib.crc32(f"{terms.VERSION}\n{SQL}".encode())
FIND = """SELECT d.number, d.key, d.at_s, d.kind, {counts} FROM found CROSS JOIN search_doc d ON d.number = found.rowid
WHERE found MATCH ? AND found.rowid BETWEEN ? AND ? AND {seen} ORDER BY found.rowid DESC LIMIT ?"""
CONTAINING = "SELECT w.term FROM part LEFT JOIN word w ON w.id = part.rowid WHERE part MATCH ? ORDER BY w.term"
_FEW = 1000
_SHORTEST = 4  # a word of three letters has no part of three letters but itself


def counts(api: Any, marks: bytes) -> int:
    """Count for a row in how many places the marked phrases of the query match, and which of them match at all."""
    found, which = 0, 0
    for at, phrase in enumerate(marks):
        if here := len(api.phrase_column_offsets(phrase, 0)):
            found, which = found + here, which | 1 << at
    return tally(found, which)


def times(api: Any) -> int:
    """Count for a row in how many places any phrase of the query matches; ``counts`` takes ten times as long."""
    return int(api.inst_count)


FUNCTIONS: dict[str, Callable[..., int]] = {"counts": counts, "times": times}


class Fts:
    """The engine for SQLite."""

    # ------------------------------------------------------------------ adding and erasing

    def add(self, tx: Tx, documents: Sequence[IndexedText]) -> None:
        """Add documents, with ascending numbers that are higher than all before."""
        self._list(tx, documents)
        for doc in documents:
            before = terms.of_scope(doc.scope)
            text = f" {before}".join(["", *doc.terms])
            tx.run("INSERT INTO found (rowid, terms) VALUES (?, ?)", (doc.number, text))
        self._add_words(tx, documents)

    def _list(self, tx: Tx, documents: Sequence[IndexedText]) -> None:
        """Note where documents come from, and count them in their scopes."""
        counts = {scope: places.nth(tx, scope, documents[-1].number) for scope in {doc.scope for doc in documents}}
        for some in several(documents, 200):
            values = list[Value]()
            for doc in some:
                counts[doc.scope] += 1
                values += (doc.scope, doc.number, doc.key, doc.at_s, doc.kind, counts[doc.scope])
            tx.run(tables.insert("search_doc", len(some), "nth"), values)

    def _add_words(self, tx: Tx, documents: Iterable[IndexedText]) -> None:
        """Keep the words that are new."""
        new = {(doc.scope, term) for doc in documents for term in doc.terms if len(term) >= _SHORTEST}
        words = [terms.of_scope(scope) + term for scope, term in sorted(new) if terms.is_word(term)]
        for some in several(words, 500):
            sql = f"INSERT OR IGNORE INTO word (term) VALUES {', '.join(['(?)'] * len(some))} RETURNING id, term"
            self._write_parts(tx, tx.all(sql, some))

    def remove(self, tx: Tx, scope: str, numbers: Sequence[int]) -> None:
        """Remove documents, so that nothing of them is found; traces of them may stay in the tables."""
        for some in several(numbers, 500):
            tx.run(f"DELETE FROM found WHERE rowid IN ({slots(len(some))})", some)
            tx.run(f"DELETE FROM search_doc WHERE scope = ? AND number IN ({slots(len(some))})", (scope, *some))

    def erase(self, tx: Tx, scope: str, numbers: Sequence[int]) -> bool:
        """Remove documents, so that nothing of them is left that anybody could read; there is never more to erase."""
        if not numbers:
            return False
        self.remove(tx, scope, numbers)
        tx.run("INSERT INTO found (found) VALUES ('optimize')")
        self._forget_words(tx)
        return False

    def _forget_words(self, tx: Tx) -> None:
        """Drop the words that no document has any more."""
        gone = tx.all("DELETE FROM word WHERE term NOT IN (SELECT term FROM used) RETURNING id, term")
        if len(gone) <= _FEW:
            self._write_parts(tx, gone, "delete")
        else:  # taken out one by one, each word rewrites what it shares with others: 120,000 took 7 s
            tx.run("INSERT INTO part (part) VALUES ('delete-all')")
            self._write_parts(tx, tx.all("SELECT id, term FROM word"))

    def _write_parts(self, tx: Tx, words: Sequence[Row], command: str | None = None) -> None:
        """Add the trigrams of words, or delete them."""
        for some in several(words, 300):
            values = [value for number, term in some for value in (command, number, _grams(term))]
            tx.run(f"INSERT INTO part (part, rowid, grams) VALUES {', '.join(['(?, ?, ?)'] * len(some))}", values)

    # ------------------------------------------------------------------ finding

    def find(self, tx: Tx, wanted: Wanted, within: Within, limit: int, counted: Sequence[TermRun] = ()) -> list[Match]:
        """Return the matches with the highest numbers, in descending order."""
        phrases = list[TermRun]()
        text = _written(wanted, terms.of_scope(within.scope), phrases)
        seen, values = places.seen(within)
        marks = [phrases.index(each) for each in counted if phrases.index(each) < 256]
        given = tuple[Value, ...]()
        if not marks:
            how = "0"
        elif len(marks) == 1 == len(phrases):
            how = f"times(found) | {tally(0, 1)}"
        else:
            how, given = "counts(found, ?)", (bytes(marks),)
        rows = tx.all(FIND.format(seen=seen, counts=how), (*given, text, within.low, within.high, *values, limit))
        make = tuple.__new__  # without the checks of a named tuple: nothing here is called as often
        return [make(Match, row) for row in rows]

    def containing(self, tx: Tx, scope: str, part: str, most: int) -> list[str]:
        """Return up to ``most`` words with a part of at least three characters inside, in order; not that word itself.

        Words that no document has any more may be among them.
        """
        # Without positions the trigrams of the part may be anywhere in a word, so each word found is looked at again.
        before, found = terms.of_scope(scope), list[str]()
        grams = " ".join(f'"{gram}"' for gram in _grams(before + part).split(" "))
        for term in scalars(tx, CONTAINING, (grams,)):
            if term is None:
                raise Derived("the search index is damaged: a word is missing")
            word = term.removeprefix(before)
            if part in word and word != part:
                found.append(word)
                if len(found) == most:
                    break
        return found

    # ------------------------------------------------------------------ checking

    def check(self, tx: Tx, scope: str) -> list[str]:
        """Return what is wrong with the tables, as far as they show it themselves."""
        said = list[str]()
        for table in ("found", "part"):
            tx.run(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")  # raises ``Derived`` if damaged
        said += [str(each) for each in scalars(tx, "PRAGMA integrity_check(5)") if each != "ok"]
        (documents,) = scalars(tx, "SELECT count(*) FROM search_doc")
        (rows,) = scalars(tx, "SELECT count(*) FROM found_docsize")
        if documents != rows:
            said.append(f"{documents:,} documents are listed, but {rows:,} have terms")
        return said

    def clear(self, tx: Tx, scope: str) -> None:
        """Delete everything of a scope; a file is rather begun anew."""
        self.erase(tx, scope, scalars(tx, "SELECT number FROM search_doc WHERE scope = ?", (scope,)))
        for name in places.TABLES:
            tx.run(f"DELETE FROM {name} WHERE scope = ?", (scope,))


def _grams(term: str) -> str:
    """Return the trigrams of a word, each behind the scope that the word begins with."""
    at = term.rfind(terms.SCOPE_END) + 1
    return " ".join(term[:at] + term[first : first + 3] for first in range(at, len(term) - 2))


def _written(wanted: Wanted, before: str, phrases: list[TermRun]) -> str:
    """Write what is wanted in the words of FTS5, with what each term begins with, and note its phrases in order."""
    if isinstance(wanted, TermRun):
        phrases.append(wanted)
        return f'"{" ".join([before + term for term in wanted.terms])}"{" *" if wanted.open else ""}'
    if isinstance(wanted, But):
        first = _written(wanted.wanted, before, phrases)
        return f"({first} NOT {_written(wanted.unwanted, before, phrases)})"
    assert isinstance(wanted, All | Some)
    word = " AND " if isinstance(wanted, All) else " OR "
    return f"({word.join(_written(part, before, phrases) for part in wanted.parts)})"
