"""Reads SQLite's write-ahead log as bytes, to find commits that SQLite would silently drop.

SQLite replays a log up to the first frame whose checksum fails and ignores the rest: one flipped
bit lost up to 117 of 150 acknowledged commits, with every check passing. Before opening a store that
nobody has open, ``inspect`` reads on behind that frame. Complete commits there mean damage; a broken
last transaction is a torn tail, the usual result of a crash. ``salvage`` recovers the frames behind
the damage into a copy, where row checks and hashes then identify the damaged record.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple, TypeAlias

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
_MASK = 0xFFFFFFFF
_NEW = 0.25  # a new page counts as much as one of which this fraction is unchanged
_GROWTH = 5000  # the most pages by which one commit is assumed to grow a database
Data: TypeAlias = "bytes | bytearray | mmap.mmap"


class WalFrame(NamedTuple):
    """One frame: where it starts, its page, the database size if it commits, its salts and checksum."""

    offset: int
    page: int
    commit: int
    salts: tuple[int, int]
    checksum: tuple[int, int]


class WalState(NamedTuple):
    """The state of a log. ``lost_commits`` counts complete commits that SQLite would drop because of damage."""

    frames: int
    valid_frames: int
    lost_commits: int
    what: str


def inspect(path: str) -> WalState:
    """Inspect a log file without changing it; a missing or empty one is fine."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < _HEADER.size + _FRAME.size:
                return WalState(0, 0, 0, "empty log")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _inspect(data)
    except FileNotFoundError:
        return WalState(0, 0, 0, "no log")


def _inspect(data: Data) -> WalState:
    header = _HEADER.unpack_from(data)
    if not _header_is_valid(data, header):
        return _without_header(data)
    frames = [frame for frame in _frames(data, header[2]) if frame.salts == header[4:6]]
    valid = _valid_prefix(data, header, frames)
    return WalState(len(frames), valid, _lost_commits(frames, valid), "frame checksum")


def _header_is_valid(data: Data, header: tuple[int, ...]) -> bool:
    return header[0] in _MAGIC and _checksum(data, 0, 24, header[0] & 1, (0, 0)) == header[6:8]


def _without_header(data: Data) -> WalState:
    """Count the commits in a log without a valid header, which SQLite would drop entirely."""
    for page_size in (4096, 1024, 2048, 8192, 16384, 32768, 65536, 512):
        frames = list(_frames(data, page_size))
        commits = [f for f in frames if f.commit and f.salts == frames[0].salts and any(f.salts)]
        if commits:
            return WalState(len(frames), 0, len(commits), "log header")
    return WalState(0, 0, 0, "log header")


def _frames(data: Data, page_size: int) -> list[WalFrame]:
    size = _FRAME.size + page_size
    found = []
    for offset in range(_HEADER.size, len(data) - size + 1, size):
        page, commit, salt1, salt2, sum1, sum2 = _FRAME.unpack_from(data, offset)
        found.append(WalFrame(offset, page, commit, (salt1, salt2), (sum1, sum2)))
    return found


def _valid_prefix(data: Data, header: tuple[int, ...], frames: list[WalFrame]) -> int:
    """Count the frames that SQLite would replay: those with valid checksums, up to the last commit among them."""
    page_size, big_endian = header[2], header[0] & 1
    running, committed, expected = (header[6], header[7]), 0, _HEADER.size
    for number, frame in enumerate(frames, 1):
        if frame.offset != expected:
            break
        running = _checksum(data, frame.offset, 8, big_endian, running)
        running = _checksum(data, frame.offset + _FRAME.size, page_size, big_endian, running)
        if running != frame.checksum:
            break
        expected += _FRAME.size + page_size
        if frame.commit:
            committed = number
    return committed


def _lost_commits(frames: list[WalFrame], valid: int) -> int:
    """Count the commits behind the replayed part, unless there is only one last, torn transaction.

    Each commit is synced before the next begins, so anything behind a broken transaction proves
    that it was once complete. Valid frames that were never committed do not count.
    """
    behind = frames[valid:]
    commits = [number for number, frame in enumerate(behind) if frame.commit]
    if not commits or commits[0] == len(behind) - 1:
        return 0
    return len(commits)


def _checksum(data: Data, start: int, length: int, big_endian: int, seed: tuple[int, int]) -> tuple[int, int]:
    words = struct.unpack_from(f"{'>' if big_endian else '<'}{length // 4}I", data, start)
    first, second = seed
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second


def salvage(source: str, target: str) -> int:
    """Write a copy of a log in which every frame of its generation is valid again; return their count.

    Page contents are copied as they are: row checks find a damaged page afterwards.
    """
    try:
        with open(source, "rb") as file:
            data = bytearray(file.read())
    except FileNotFoundError:
        return 0
    if len(data) < _HEADER.size + _FRAME.size:
        return 0
    header = _HEADER.unpack_from(data)
    page_size, salts = header[2], header[4:6]
    if not _header_is_valid(data, header):
        page_size, salts = 4096, _FRAME.unpack_from(data, _HEADER.size)[2:4]
        fresh = (_MAGIC[0], 3007000, page_size, header[3], *salts)
        _HEADER.pack_into(data, 0, *fresh, 0, 0)
        _HEADER.pack_into(data, 0, *fresh, *_checksum(data, 0, 24, 0, (0, 0)))
        header = _HEADER.unpack_from(data)
    frames = _frames(data, page_size)
    last = max((n for n, f in enumerate(frames) if f.salts == salts and f.commit), default=-1)
    running = before = (header[6], header[7])
    mender = _Mender(data, page_size, header[0] & 1, source.removesuffix("-wal"))
    for frame, after in zip(frames[: last + 1], (*frames[1 : last + 1], None), strict=True):
        before, frame = frame.checksum, mender.mend(frame, before, after)
        _FRAME.pack_into(data, frame.offset, frame.page, frame.commit, *salts, 0, 0)
        running = _checksum(data, frame.offset, 8, header[0] & 1, running)
        running = _checksum(data, frame.offset + _FRAME.size, page_size, header[0] & 1, running)
        _FRAME.pack_into(data, frame.offset, frame.page, frame.commit, *salts, *running)
    end = _HEADER.size + (last + 1) * (_FRAME.size + page_size)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data[:end])
    return last + 1


class _Mender:
    """Corrects the page number or commit mark of a frame in which one bit was flipped.

    The checksum alone does not tell where the damage is: a flipped bit in the page often changes it just like one in
    these two numbers. So of all corrections that fit the checksum we take the one that keeps the pages of a commit in
    order, and whose content is most like what that page held before.
    """

    def __init__(self, data: bytearray, page_size: int, big_endian: int, path: str) -> None:
        self._data = data
        self._size = page_size
        self._big_endian = big_endian
        self._path = path  # the database, not the log
        self._newest = dict[int, int]()  # by page: where its newest content starts in the log
        self._pages = os.path.getsize(path) // page_size if os.path.exists(path) else 0
        self._last = 0  # the page of the previous frame, if that belongs to the same commit

    def mend(self, frame: WalFrame, before: tuple[int, int], after: WalFrame | None) -> WalFrame:
        """Return the next frame as it was written; ``before`` is the checksum of the previous frame."""
        if not self._fits(frame, frame, before):
            flipped = [self._flipped(frame, bit) for bit in range(64)]
            fitting = [each for each in flipped if self._fits(each, frame, before)]
            frame = max((frame, *fitting), key=lambda each: self._likelihood(each, after)) if fitting else frame
        self._newest[frame.page] = frame.offset + _FRAME.size
        self._pages = max(self._pages, frame.page if frame.page <= self._pages + _GROWTH else 0)
        self._last = 0 if frame.commit else frame.page
        return frame

    def _fits(self, tried: WalFrame, frame: WalFrame, before: tuple[int, int]) -> bool:
        numbers = struct.pack(">2I", tried.page, tried.commit)
        running = _checksum(numbers, 0, 8, self._big_endian, before)
        content = frame.offset + _FRAME.size
        return _checksum(self._data, content, self._size, self._big_endian, running) == frame.checksum

    def _flipped(self, frame: WalFrame, bit: int) -> WalFrame:
        if bit < 32:
            return frame._replace(page=frame.page ^ 1 << bit)
        return frame._replace(commit=frame.commit ^ 1 << (bit - 32))

    def _likelihood(self, frame: WalFrame, after: WalFrame | None) -> tuple[bool, bool, float, int]:
        possible = 0 < frame.page <= self._pages + _GROWTH and (not frame.commit or frame.page <= frame.commit)
        ordered = frame.page > self._last and (bool(frame.commit) or after is None or frame.page < after.page)
        return possible, ordered, self._likeness(frame), -abs(frame.commit - self._pages) if frame.commit else -_GROWTH

    def _likeness(self, frame: WalFrame) -> float:
        """Return the fraction of a page's bytes that are unchanged, ignoring those that were and are zero."""
        if not 0 < frame.page <= self._pages:
            return _NEW
        start = frame.offset + _FRAME.size
        pairs = zip(self._before(frame.page), self._data[start : start + self._size], strict=False)
        used = [one == two for one, two in pairs if one or two]
        return sum(used) / max(1, len(used))

    def _before(self, page: int) -> bytes:
        start = self._newest.get(page)
        if start is not None:
            return bytes(self._data[start : start + self._size])
        with open(self._path, "rb") as file:
            file.seek((page - 1) * self._size)
            return file.read(self._size)
