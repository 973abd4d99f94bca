"""Watching a workspace: the system reports which paths changed, so that only those are scanned.

Needs ``takeback[watch]``. Reports arrive a little late, so a scan first creates a marker file and waits until that is
reported: everything before it has been reported by then. Any doubt - nothing reported yet, a marker that does not
arrive, too much at once - leads to a full scan.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from ...errors import Unsupported
from .ignore import STAGING, is_ours

_PATIENCE = 1.0
_MOST = 5_000
_DEBOUNCE_MS = 1


class Watcher:
    """Collects the paths that change in a directory, in a thread of its own that ends with it."""

    def __init__(self, root: str) -> None:
        try:
            import watchfiles
        except ImportError as error:
            raise Unsupported(
                "watching needs the package watchfiles: pip install 'takeback[watch]'",
                capability="watch",
            ) from error
        self._root, self._number = root, 0
        self._reports = _Reports(root)
        self._stop = threading.Event()
        changes = watchfiles.watch(
            root,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_DEBOUNCE_MS,
            rust_timeout=200,
            stop_event=self._stop,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        threading.Thread(target=_collect, args=(changes, self._reports), name="takeback-watch", daemon=True).start()
        weakref.finalize(self, self._stop.set)
        self._ready = False

    def changed(self) -> list[bytes] | None:
        """Return the paths that changed since the last call; None if unknown."""
        found = self._reports.take() if self._caught_up() else None
        # What changed before watching began is unknown, so the first answer is None.
        first, self._ready = not self._ready, True
        return None if first or found is None or len(found) > _MOST else sorted(found)

    def _caught_up(self) -> bool:
        """Wait until everything that happened so far is reported."""
        self._number += 1
        name = f"{STAGING}mark-{os.getpid()}-{self._number}"
        mark = os.path.join(self._root, name)
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return self._reports.wait_for(os.fsencode(name), _PATIENCE)
        except OSError:
            return False
        finally:
            try:
                os.unlink(mark)
            except OSError:
                pass

    def close(self) -> None:
        """End the thread."""
        self._stop.set()


class _Reports:
    """What was reported and not yet taken."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(root)
        self._changed = threading.Condition()
        self._paths = set[bytes]()
        self._marks = set[bytes]()
        self._lost = False

    def add(self, paths: list[str]) -> None:
        prefix = self._root + b"/"
        with self._changed:
            for each in map(os.fsencode, paths):
                if not each.startswith(prefix):
                    self._lost = self._lost or each == self._root
                    continue
                inside = each[len(prefix) :]
                marks = is_ours(os.fsdecode(inside.partition(b"/")[0]))
                (self._marks if marks else self._paths).add(inside)
            self._changed.notify_all()

    def lose(self) -> None:
        """Note that nothing is reported any more."""
        with self._changed:
            self._lost = True
            self._changed.notify_all()

    def wait_for(self, mark: bytes, seconds: float) -> bool:
        with self._changed:
            there = self._changed.wait_for(lambda: mark in self._marks or self._lost, seconds)
            self._marks.clear()
            return there and not self._lost

    def take(self) -> set[bytes]:
        with self._changed:
            found, self._paths = self._paths, set()
            return found


def _collect(changes: Any, reports: _Reports) -> None:
    try:
        for batch in changes:
            reports.add([path for _, path in batch])
    except Exception:  # whatever it is, from now on every scan is a full one
        pass
    reports.lose()
