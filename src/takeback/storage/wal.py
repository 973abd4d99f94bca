"""Reads SQLite's write-ahead log as bytes, to see what SQLite would drop in silence.

SQLite replays a log up to the first frame whose checksum fails and forgets the rest: one flipped
bit lost up to 117 of 150 acknowledged commits with every check green. Before a store that nobody
has open is opened, ``inspect`` looks behind that frame. Whole commits there mean damage; a bad
last transaction is a torn tail, which is what a crash leaves. ``salvage`` brings the frames behind
the damage back in a copy, where row checks and hashes then tell the damaged record apart.
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
Data: TypeAlias = "bytes | bytearray | mmap.mmap"


class Frame(NamedTuple):
    """One frame: where it starts, its page, the database size if it commits, its salts and checksum."""

    offset: int
    page: int
    commit: int
    salts: tuple[int, int]
    checksum: tuple[int, int]


class WalState(NamedTuple):
    """What a log holds. ``lost_commits``: whole commits that SQLite would drop because of damage before them."""

    frames: int
    valid_frames: int
    lost_commits: int
    what: str


def inspect(path: str) -> WalState:
    """Look at a log file without changing it; a missing or empty one is fine."""
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
    """Without a valid header SQLite drops everything; count the commits that frames still show."""
    for page_size in (4096, 1024, 2048, 8192, 16384, 32768, 65536, 512):
        frames = list(_frames(data, page_size))
        commits = [f for f in frames if f.commit and f.salts == frames[0].salts and any(f.salts)]
        if commits:
            return WalState(len(frames), 0, len(commits), "log header")
    return WalState(0, 0, 0, "log header")


def _frames(data: Data, page_size: int) -> list[Frame]:
    size = _FRAME.size + page_size
    found = []
    for offset in range(_HEADER.size, len(data) - size + 1, size):
        page, commit, salt1, salt2, sum1, sum2 = _FRAME.unpack_from(data, offset)
        found.append(Frame(offset, page, commit, (salt1, salt2), (sum1, sum2)))
    return found


def _valid_prefix(data: Data, header: tuple[int, ...], frames: list[Frame]) -> int:
    """Count the frames that SQLite would replay: checked ones, up to the last commit among them."""
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


def _lost_commits(frames: list[Frame], valid: int) -> int:
    """Count commits behind the replayed part, unless the last transaction is all there is.

    Each commit is synced before the next begins, so anything behind a broken transaction proves
    that the broken one was whole once. Frames that were checked but not committed do not count.
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
    """Write a copy of a log in which every frame of its generation is valid again; give their count.

    Contents are taken as they are: a damaged page is found afterwards by the row checks.
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
    for frame in frames[: last + 1]:
        before, frame = frame.checksum, _mended(data, frame, page_size, header[0] & 1, before)
        _FRAME.pack_into(data, frame.offset, frame.page, frame.commit, *salts, 0, 0)
        running = _checksum(data, frame.offset, 8, header[0] & 1, running)
        running = _checksum(data, frame.offset + _FRAME.size, page_size, header[0] & 1, running)
        _FRAME.pack_into(data, frame.offset, frame.page, frame.commit, *salts, *running)
    end = _HEADER.size + (last + 1) * (_FRAME.size + page_size)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data[:end])
    return last + 1


def _mended(data: bytearray, frame: Frame, page_size: int, big_endian: int, before: tuple[int, int]) -> Frame:
    """Give a frame with its page number and commit mark right, if one flipped bit is all that is wrong with them."""
    good = data[frame.offset : frame.offset + _FRAME.size + page_size]
    for bit in (None, *range(64)):
        tried = bytearray(good)
        if bit is not None:
            tried[bit // 8] ^= 1 << bit % 8
        running = _checksum(tried, 0, 8, big_endian, before)
        if _checksum(tried, _FRAME.size, page_size, big_endian, running) == frame.checksum:
            page, commit = struct.unpack_from(">2I", tried)
            return frame._replace(page=page, commit=commit)
    return frame
