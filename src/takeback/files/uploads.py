"""Storing the contents of a scan in batches, in a second thread, while the first one reads on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable

from ..ops import blobs
from ..storage.runner import Runner
from . import contents

_BATCH_BYTES, _BATCH_COUNT = 2 << 20, 400


class Upload:
    """Stores contents in batches, in a thread of its own once there is more than one batch."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._lock = threading.Lock()
        self._batch: list[tuple[bytes, bytes]] = []
        self._size = 0
        self._put = set[bytes]()
        # Bounded, so that reading cannot outrun storing and fill the memory.
        self._waiting: queue.Queue[list[tuple[bytes, bytes]] | None] = queue.Queue(maxsize=3)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def has(self, digest: bytes) -> bool:
        if digest in self._put:
            return True
        return self._runner.read(blobs.exists, self._runner.scope, digest.hex())

    def put(self, digest: bytes, data: bytes) -> None:
        with self._lock:
            if digest in self._put:
                return
            self._put.add(digest)
            self._batch.append((digest, data))
            self._size += len(data)
            if self._size >= _BATCH_BYTES or len(self._batch) >= _BATCH_COUNT:
                self._hand_over()

    def stream(self, pieces: Iterable[bytes]) -> bytes:
        return bytes.fromhex(contents.store_stream(self._runner, pieces))

    def finish(self) -> list[blobs.Packed]:
        """Wait until all but the last few are stored; return those, packed, to go into the next transaction.

        A failure in the other thread is raised here.
        """
        if self._thread is not None:
            self._hand_over()
            self.stop()
        if self._failure is not None:
            raise self._failure
        last, self._batch = _packed(self._batch), []
        return last

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _hand_over(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="takeback-files", daemon=True)
            self._thread.start()
        self._waiting.put(self._batch)
        self._batch, self._size = [], 0

    def _work(self) -> None:
        while (batch := self._waiting.get()) is not None:
            # Drained even after a failure, or the reader would block on a full queue.
            if self._failure is None:
                try:
                    self._store_batch(batch)
                except BaseException as failure:
                    self._failure = failure

    def _store_batch(self, batch: list[tuple[bytes, bytes]]) -> None:
        if not batch:
            return
        runner = self._runner
        runner.write(blobs.put_many, runner.scope, _packed(batch), now_ms=runner.clock.now_ms())


def _packed(batch: list[tuple[bytes, bytes]]) -> list[blobs.Packed]:
    return [blobs.Packed(digest.hex(), len(data), blobs.pack_small(data)) for digest, data in batch]
