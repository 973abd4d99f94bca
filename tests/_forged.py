"""A kit to forge files of workspaces: trees that no scan makes, put into an export or straight into a store.

``exported`` takes the lines of a real export with a snapshot and puts other trees into it. Every hash is computed
again - of contents, of the root, of each entry along the chain, of checkpoints - so that only the judgement of trees
can refuse the file. ``planted`` does the same to a store that is open, and needs no import. This is the only place that
knows the format of lines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from takeback import Session
from takeback.files import roots, snapshots, timeline
from takeback.files.authors import SESSION, Claim
from takeback.files.roots import Root
from takeback.model.entry import Numbers
from takeback.model.tree import DIR, EMPTY, FILE, LINK
from takeback.ops import blobs, chain, entries
from takeback.records import lines as records

Line = tuple[Any, ...]  # name, kind, mode, size, content: any of them may be wrong
pack = msgspec.msgpack.encode
CONTENT = b"planted\n"
VCS = ("git", "hg", "svn", "jj")
IGNORED = "\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u206a\u206f\ufeff\u00ad"


class Forged(NamedTuple):
    """A tree: its top directory, and every object that it leads to; ``why`` is a part of the reason to refuse it."""

    top: bytes
    objects: tuple[bytes, ...]
    why: str = ""


def digest(data: bytes) -> bytes:
    return sha256(data).digest()


def a_file(name: bytes, content: bytes = CONTENT, mode: int = 0o644) -> Line:
    return name, FILE, mode, len(content), digest(content)


def a_directory(name: bytes, data: bytes, mode: int = 0o755) -> Line:
    return name, DIR, mode, 0, digest(data)


def a_link(name: bytes, target: bytes = b"elsewhere") -> Line:
    return name, LINK, 0, len(target), target


def tree_of(lines: Sequence[Line]) -> bytes:
    """Write a directory with its names in order, whatever they are."""
    return pack(sorted(lines))


def below(inner: Forged, names: Iterable[bytes]) -> Forged:
    """Put a tree deeper into others that are as they should be."""
    top, objects = inner.top, [*inner.objects]
    for name in names:
        objects.append(top)
        top = tree_of([a_file(b"a"), a_directory(name, top), a_file(b"z")])
    return Forged(top, (*objects, CONTENT), inner.why)


# ---------------------------------------------------------------------- into an export


def exported(
    export: bytes,
    tree: Forged,
    *,
    root: Callable[[bytes], bytes] | None = None,
    change: Callable[[dict[str, Any], str], None] | None = None,
    spill: bool = False,
) -> bytes:
    """Return an export whose snapshots are this tree; ``change`` may do something else with a body and the new root."""
    made = (root or root_of)(digest(tree.top))
    found = [records.decode(line) for line in export.splitlines(keepends=True)][:-1]
    contents = {digest(each).hex(): each for each in (*tree.objects, tree.top, made)}
    for at, record in enumerate(found):
        if isinstance(record, records.EntryLine) and record.kind == "snapshot":
            found[at] = _named(record, digest(made).hex(), change or _replace_root, contents if spill else None)
    return _sealed(_chained(_with_contents(found, contents)))


def root_of(top: bytes) -> bytes:
    """Write a root as a scan does."""
    return roots.encode(Root(top, 0, [], 0))


def _replace_root(body: dict[str, Any], root: str) -> None:
    body["root"] = root
    body.pop("from", None)


def _named(
    record: Any,
    root: str,
    change: Callable[[dict[str, Any], str], None],
    spill: dict[str, bytes] | None,
) -> Any:
    body = dict(record.body)
    change(body, root)
    links = {body["root"], body.get("from", body["root"])}
    if spill is None:
        return msgspec.structs.replace(record, body=body, links=tuple(sorted(links)))
    data = records.stored(body) or b""
    name = digest(data).hex()
    spill[name] = data
    return msgspec.structs.replace(record, body=None, spill=f"{name},", links=tuple(sorted({*links, name})))


def _with_contents(found: list[Any], contents: dict[str, bytes]) -> list[Any]:
    """Add contents that the export does not have, before the first session."""
    there = {record.hash for record in found if isinstance(record, records.BlobLine)}
    at = next(at for at, record in enumerate(found) if isinstance(record, records.SessionLine))
    new = list[Any]()
    for name, data in contents.items():
        if name not in there:
            pieces = [data[start : start + blobs.CHUNK] for start in range(0, len(data), blobs.CHUNK)]
            new.append(records.BlobLine(hash=name, size=len(data), chunks=len(pieces)))
            shown = (records.shown_as_text(piece) for piece in pieces)
            new += [records.ChunkLine(n=number, data=each) for number, each in enumerate(shown)]
    return [*found[:at], *new, *found[at:]]


def _chained(found: list[Any]) -> list[Any]:
    """Compute the hash of every entry again, and what names entries by their hash."""
    hashes, parents, made = dict[tuple[str, int], bytes](), dict[str, str | None](), list[Any]()
    contents = _contents(found)

    def hash_at(branch: str | None, seq: int) -> bytes:
        if not seq or branch is None:
            return chain.GENESIS
        return hashes[branch, seq] if (branch, seq) in hashes else hash_at(parents[branch], seq)

    for record in found:
        if isinstance(record, records.BranchLine):
            parents[record.id] = record.parent
        elif isinstance(record, records.EntryLine):
            new = hashes[record.branch, record.seq] = _hash(record, hash_at(record.branch, record.seq - 1), contents)
            record = msgspec.structs.replace(record, hash=new.hex())
        elif isinstance(record, records.PointLine):
            record = msgspec.structs.replace(record, hash=hash_at(record.branch, record.seq).hex())
        made.append(record)
    return made


def _hash(record: Any, previous: bytes, contents: dict[str, bytes]) -> bytes:
    body = records.stored(record.body) if record.spill is None else contents[record.spill.partition(",")[0]]
    hashed = chain.body_hash(bytes.fromhex(record.salt or ""), body or b"", records.stored(record.raw))
    numbers, at_ms = Numbers(**msgspec.structs.asdict(record.totals)), record.at_ms
    head = chain.header(record.branch, record.seq, record.kind, at_ms, at_ms + record.late_ms, numbers)
    return chain.entry_hash(previous, head, hashed)


def _contents(found: list[Any]) -> dict[str, bytes]:
    """Return the contents of an export that are of one chunk."""
    made, name = dict[str, bytes](), ""
    for each in found:
        name = each.hash if isinstance(each, records.BlobLine) else name
        if isinstance(each, records.ChunkLine):
            made[name] = records.stored(each.data) or b""
    return made


def _sealed(found: list[Any]) -> bytes:
    body = b"".join(map(records.encode, found))
    return body + records.encode(records.EndLine(lines=len(found), sha256=sha256(body).hexdigest()))


# ---------------------------------------------------------------------- into a store


def put_objects(session: Session, objects: Iterable[bytes]) -> None:
    """Store contents as they are."""
    packed = [blobs.Packed(digest(each).hex(), len(each), blobs.pack(each)) for each in objects]
    session._store._write(lambda tx: blobs.put_many(tx, session._store.scope, packed, now_ms=0))


def planted(session: Session, tree: Forged) -> int:
    """Add a snapshot of this tree to a session, past every check; give the entry's number.

    The one before comes again behind it, as if the session itself had made it of that: so a rewind brings all of it.
    """
    root, store = root_of(digest(tree.top)), session._store
    put_objects(session, [*tree.objects, tree.top, root])

    def put(tx: Any) -> int:
        row, now_ms = entries.writable(tx, store.scope, session.id), store._clock.now_ms()
        here = timeline.opened(tx, store.scope, timeline.at(row.workspace), now_ms)
        before, forged = here.root, digest(root).hex()
        claim = Claim(row, SESSION)
        here, _ = timeline.add(tx, here, forged, None, claim, now_ms=now_ms)
        made = snapshots.put(tx, row, forged, at=here, who=SESSION, now_ms=now_ms)
        if before:
            here, _ = timeline.add(tx, here, before, None, claim, now_ms=now_ms)
            snapshots.put(tx, made, before, at=here, who=SESSION, now_ms=now_ms)
        return made.seq

    seq = store._write(put)
    session.refresh()
    return seq


# ---------------------------------------------------------------------- hostile trees


def spelling(rng: random.Random) -> bytes:
    """Spell the name of a control directory in some way that leads to it on some file system."""
    base = rng.choice(VCS)
    if rng.random() < 0.3:
        short = f"{base}~{rng.randint(1, 12)}" if rng.random() < 0.8 else f"{base[:2]}{rng.randrange(1 << 16):04x}~1"
        text = _any_case(rng, short)
    else:
        text = _any_case(rng, f".{base}")
        if rng.random() < 0.4:
            for _ in range(rng.randint(1, 3)):
                at = rng.randint(0, len(text))
                text = text[:at] + rng.choice(IGNORED) + text[at:]
    text += rng.choice(["", "", "", ".", " ", " . .", "...", "::$INDEX_ALLOCATION", ":x", "\\config", ". \\a\\b"])
    return (rng.choice(["", "", "", "a\\", "a\\b\\"]) + text).encode()


def _any_case(rng: random.Random, text: str) -> str:
    return "".join(rng.choice([each.upper(), each]) for each in text) if rng.random() < 0.5 else text


def _with(rng: random.Random, *bad: Line) -> bytes:
    """Write a directory in which wrong lines stand among good ones."""
    good = [a_file(f"f{number}".encode()) for number in range(rng.randint(0, 4))]
    return tree_of([*good, *bad])


def _bad_name(rng: random.Random) -> tuple[bytes, str]:
    wrong = [b"", b".", b"..", b"../x", b"a/b", b"/etc/passwd", b"a\0b", b".git/config", b"x" * 5000, b"/"]
    name = rng.choice(wrong)
    line = rng.choice([a_file(name), a_link(name), a_directory(name, pack([])), (name, "x", 1, 0, b"ignored")])
    return _with(rng, line), "name"


def _control(rng: random.Random) -> tuple[bytes, str]:
    name = spelling(rng)
    line = rng.choice([a_file(name), a_link(name), a_directory(name, tree_of([a_file(b"config")]))])
    return _with(rng, line), "belongs to a repository"


def _bad_mode(rng: random.Random) -> tuple[bytes, str]:
    mode = rng.choice([0o1000, 0o4755, 0o2755, 0o100644, -1, 1 << 40, rng.randrange(0o1000, 1 << 20)])
    return _with(rng, rng.choice([a_file(b"m", mode=mode), a_directory(b"m", pack([]), mode)])), "has the mode"


def _twice(rng: random.Random) -> tuple[bytes, str]:
    return _with(rng, a_file(b"same"), rng.choice([a_file(b"same"), a_link(b"same"), a_file(b"same", b"")])), "twice"


def _unsorted(rng: random.Random) -> tuple[bytes, str]:
    lines = [a_file(bytes([97 + number])) for number in range(rng.randint(2, 6))]
    return pack(lines[::-1]), "not sorted"


def _unknown_kind(rng: random.Random) -> tuple[bytes, str]:
    return _with(rng, (b"k", rng.choice(["", "a", "F", "h", "ff", "\x1b[2J", "block"]), 0o644, 0, b"")), "unknown kind"


def _bad_digest(rng: random.Random) -> tuple[bytes, str]:
    size = rng.choice([0, 1, 20, 31, 33, 64])
    return _with(rng, (b"d", rng.choice([FILE, DIR]), 0o644, 0, b"\1" * size)), "names its content by"


def _bad_size(rng: random.Random) -> tuple[bytes, str]:
    size = rng.choice([-1, -(1 << 40), (1 << 64) - 1, 1 << 63])
    return _with(rng, (b"s", rng.choice([FILE, LINK]), 0o644, size, digest(CONTENT))), "has the size"


def _other_size(rng: random.Random) -> tuple[bytes, str]:
    return _with(rng, (b"s", FILE, 0o644, rng.choice([0, 1, 1 << 40]), digest(CONTENT))), "bytes instead of"


def _nul_in_target(rng: random.Random) -> tuple[bytes, str]:
    return _with(rng, a_link(b"l", b"a\0b")), "NUL"


def _odd(rng: random.Random) -> tuple[bytes, str]:
    link, empty = a_link(b"o"), pack([])
    lines = [
        (*link[:2], 0o777, *link[3:]),
        (*link[:3], 1, link[4]),
        (*a_directory(b"o", empty)[:3], 4096, digest(empty)),
    ]
    return _with(rng, rng.choice([*lines, (b"o", "x", 0, 1, b"")])), "'o'"


def _other_form(rng: random.Random) -> tuple[bytes, str]:
    line = a_file(b"f")
    forms = [
        *(b"", b"\xc1", pack({}), pack(None), pack([line]) + b"\0", pack([line[:4]]), pack([[*line, 1]])),
        *(
            pack([["f", *line[1:]]]),
            pack([[line[0], FILE, 420.0, *line[3:]]]),
            pack([[line[0], FILE, True, *line[3:]]]),
        ),
        *(b"\xdc\x00\x01" + pack([line])[1:], b"\xdd\x00\x00\x00\x01" + pack([line])[1:]),
    ]
    return rng.choice(forms), "not sound"


WRONG = (
    *(_bad_name, _control, _control, _control, _bad_mode, _twice, _unsorted, _unknown_kind, _bad_digest, _bad_size),
    *(_other_size, _nul_in_target, _odd, _other_form),
)


def hostile(rng: random.Random) -> Forged:
    """Make a tree that no scan makes: one wrong thing, somewhere in what is right; or a bomb."""
    if rng.random() < 0.06:
        return rng.choice([bomb(rng.randint(22, 60), rng.randint(2, 9)), chain_of(rng.randint(101, 160))])
    data, why = rng.choice(WRONG)(rng)
    inner = Forged(data, (pack([]), CONTENT, b"", tree_of([a_file(b"config")])), why)
    return below(inner, [f"d{number}".encode() for number in range(rng.choice([0, 0, 1, 2, 5]))])


def bomb(levels: int, names: int) -> Forged:
    """Make a tree of few objects and very many paths: each directory holds the next one several times."""
    return _repeated(levels, names, "paths")


def chain_of(levels: int) -> Forged:
    """Make directories in each other, deeper than any scan goes."""
    return _repeated(levels, 1, "levels deep")


def _repeated(levels: int, names: int, why: str) -> Forged:
    top, objects = tree_of([a_file(b"f")]), [CONTENT]
    for _ in range(levels):
        objects.append(top)
        top = tree_of([a_directory(b"%d" % number, top) for number in range(names)])
    return Forged(top, tuple(objects), why)


def sound(rng: random.Random, depth: int = 3) -> Forged:
    """Make a tree as a scan makes it, with names that only resemble those of control directories."""
    close = [
        b".gitignore",
        b".github",
        b"git",
        b"git~",
        b".git-x",
        b".git.x",
        b"hg",
        b".hgignore",
        b"svn",
        b"a\\b",
        b"a:b",
    ]
    close += [
        b".gi",
        b".gitmodules",
        b"\xff\xfe",
        b"new\nline",
        b"...",
        b" ",
        b"x" * 255,
        b".\xc3\xa4git",
        b".jjx",
        b"~1",
    ]
    lines, objects = dict[bytes, Line](), [CONTENT]
    for name in rng.sample(close, rng.randint(0, 6)):
        lines[name] = rng.choice([a_file, a_link])(name)
    for name in rng.sample([b".git", b".GIT", b"git~1", b".svn"], rng.randint(0, 2)):
        lines[name] = (name, "x", rng.randint(0, 1), 0, b"a repository's own records")
    if depth and rng.random() < 0.8:
        inner = sound(rng, depth - 1)
        objects += [*inner.objects, inner.top]
        lines[b"sub"] = a_directory(b"sub", inner.top, rng.choice([0o755, 0o700, 0]))
    return Forged(tree_of([*lines.values()]), tuple(objects))


assert digest(pack([])) == EMPTY
