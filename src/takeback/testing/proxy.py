"""A network that fails on demand: a TCP proxy on loopback between a client and a server.

    with Proxy("127.0.0.1", server.port) as proxy:
        store = takeback.open(server.dsn(port=proxy.port))
        proxy.drop_next_reply(b"COMMIT")    # committed, but the client never learns of it
        session.user("...")                 # must check, not blindly send again

One thread carries every connection and switches every fault, so a fault is in force when its method returns, and no
read is split between two modes. A stream never resumes with a gap: a connection that lost bytes is closed, or stays
silent for good, even after ``heal()``.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Self

_CHUNK = 65_536
_BUFFER = 16 * _CHUNK
_OVERLAP = 256
_DRAIN_SECONDS = 5.0
_RESET = struct.pack("ii", 1, 0)


def free_port() -> int:
    """Return a free port of 127.0.0.1 that no outgoing connection will be assigned."""
    # Below the ephemeral range, so that a server that is down for a moment gets the same port again.
    for port in random.SystemRandom().sample(range(15_000, 30_000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port on 127.0.0.1")


class _Flow:
    """One direction of a connection: what was read but not yet written."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.buffer = bytearray()
        self.ended = False  # nothing more will be read
        self.shut = False  # and the end was passed on to the target


class _Link:
    """A client's connection, and the one made to the server for it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.up, self.down = _Flow(client, server), _Flow(server, client)
        self.recent = b""  # the end of the requests, to find a pattern split between two reads
        self.marked = False  # the next reply will be lost
        self.deaf = False  # replies are dropped and the client is left waiting
        self.doomed: float | None = None  # replies are dropped, and the connection is ended at this time
        self.patience = 0.0  # until when the server may finish what it received


class Proxy:
    """Forwards ``127.0.0.1:port`` to a server, with the faults that a test requests.

    ``connections`` counts those open now, ``accepted`` those made so far, ``faults`` those ended by a lost reply.
    ``fault_rate``, which may change at any time, is the probability that a piece of a reply is dropped and both
    sides are reset; ``seed`` makes this repeatable.
    """

    def __init__(self, host: str, port: int, *, fault_rate: float = 0.0, seed: int = 0) -> None:
        self.accepted = 0
        self.faults = 0
        self._target = (host, port)
        self.fault_rate = fault_rate
        self._random = random.Random(seed)
        self._links: set[_Link] = set()
        self._stalled = False
        self._half_closed = False
        self._reply_delay: float | None = None
        self._patterns: list[bytes] = []
        self._calls: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self.port = free_port()
        self._listener: socket.socket | None = None
        self._listen()
        self._thread = threading.Thread(target=self._run, name=f"takeback-proxy-{self.port}", daemon=True)
        self._thread.start()
        _proxies.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    def drop_replies(self, delay: float = 0.0) -> None:
        """Forward requests and drop replies; a connection is closed ``delay`` seconds after its first lost reply.

        The server has carried out whatever it received by then; the client only sees the connection close.
        """
        self._call(lambda: self._set(reply_delay=delay))

    def drop_next_reply(self, pattern: bytes = b"", *later: bytes) -> None:
        """Drop the next reply to a request that contains ``pattern``, then reset that connection.

        With more patterns, drop one reply for each of them, in order. The server has carried out the request, and all
        that came with it, before the client sees the reset.
        """
        self._call(lambda: self._arm([pattern, *later]))

    def stall(self) -> None:
        """Forward nothing in either direction and close nothing; accept new connections. ``heal`` resumes."""
        self._call(lambda: self._set(stalled=True))

    def half_close(self) -> None:
        """Silently stop the direction to the client, on all connections, also new ones, until ``heal``."""
        self._call(lambda: self._set(half_closed=True))

    def cut(self) -> None:
        """Reset both sides of every connection; new ones are accepted."""
        self._call(self._reset_all)

    def refuse(self) -> None:
        """Refuse new connections; open ones continue."""
        self._call(self._stop_listening)

    def heal(self) -> None:
        """Forward and accept everything again; disarm all faults."""
        self._call(self._heal)

    def close(self) -> None:
        """Close every connection and the port, and wait for the thread to end."""
        if self._thread.is_alive() and not self._closing:
            self._call(self._stop)
            self._thread.join()
        self._bell.close()
        self._ear.close()

    def _call(self, what: Callable[[], None]) -> None:
        """Run a function in the proxy's thread and wait for it."""
        if self._closing or not self._thread.is_alive():
            raise RuntimeError("the proxy is closed")
        done: Future[None] = Future()
        self._calls.append((what, done))
        with contextlib.suppress(BlockingIOError):  # an earlier wake-up is still unread, which is enough
            self._bell.send(b"!")
        done.result(timeout=30)

    # Everything below runs in the proxy's thread.

    def _set(self, *, stalled: bool = False, half_closed: bool = False, reply_delay: float | None = None) -> None:
        self._stalled, self._half_closed, self._reply_delay = stalled, half_closed, reply_delay
        if half_closed:
            for link in self._links:
                link.deaf = True

    def _arm(self, patterns: list[bytes]) -> None:
        self._patterns = patterns

    def _heal(self) -> None:
        self._set()
        self.fault_rate, self._patterns = 0.0, []
        for link in self._links:
            link.marked = link.marked and link.doomed is not None
        self._listen()

    def _stop(self) -> None:
        self._closing = True

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _run(self) -> None:
        try:
            while not self._closing:
                for key, ready in self._selector.select(self._watch()):
                    self._handle(key, ready)
                self._end_doomed()
                self._obey()  # last: once the caller returns, nothing of this round is still forwarded
        finally:
            self._stop_listening()
            for link in list(self._links):
                self._end(link)
            self._selector.close()

    def _handle(self, key: selectors.SelectorKey, ready: int) -> None:
        link = key.data
        if key.fileobj is self._ear:
            self._ear.recv(_CHUNK)
        elif key.fileobj is self._listener:
            self._accept()
        elif link in self._links:  # an earlier event of this round may have ended it
            self._carry(link, key.fileobj is link.client, ready)

    def _obey(self) -> None:
        while self._calls:
            what, done = self._calls.popleft()
            try:
                what()
            except BaseException as error:  # it belongs to the calling thread
                done.set_exception(error)
            else:
                done.set_result(None)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client has already left
            return
        family = socket.AF_INET6 if ":" in self._target[0] else socket.AF_INET
        link = _Link(client, socket.socket(family))
        link.deaf = self._half_closed
        for each in (link.client, link.server):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._links.add(link)
        self.accepted += 1
        try:
            link.server.connect_ex(self._target)  # a refusal shows up on the first read
        except OSError:
            self._end(link, reset=True)

    def _watch(self) -> float | None:
        """Register what each connection waits for; return how long to wait at most."""
        times = []
        for link in self._links:
            wanted = {link.client: 0, link.server: 0}
            for flow in () if self._stalled else (link.up, link.down):
                if not flow.ended and len(flow.buffer) < _BUFFER:
                    wanted[flow.source] |= selectors.EVENT_READ
                if flow.buffer:
                    wanted[flow.target] |= selectors.EVENT_WRITE
            for each, events in wanted.items():
                self._register(each, events, link)
            if link.doomed is not None:
                times.append(link.patience or link.doomed)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _register(self, each: socket.socket, events: int, link: _Link) -> None:
        known = self._selector.get_map().get(each)
        if known is None and events:
            self._selector.register(each, events, link)
        elif known is not None and not events:
            self._selector.unregister(each)
        elif known is not None and known.events != events:
            self._selector.modify(each, events, link)

    def _carry(self, link: _Link, by_client: bool, ready: int) -> None:
        incoming, outgoing = (link.up, link.down) if by_client else (link.down, link.up)
        try:
            if ready & selectors.EVENT_READ and not incoming.ended:
                with contextlib.suppress(BlockingIOError):
                    self._take(link, incoming, incoming.source.recv(_CHUNK))
            if ready & selectors.EVENT_WRITE and outgoing.buffer and link in self._links:
                with contextlib.suppress(BlockingIOError):
                    del outgoing.buffer[: outgoing.target.send(outgoing.buffer)]
            if link in self._links:
                self._pass_on_ends(link)
        except OSError:
            self._break(link, by_client)

    def _break(self, link: _Link, by_client: bool) -> None:
        """End a connection after one side failed; a client that is cut off from replies must not notice this either."""
        if link.deaf and not by_client:
            link.down.ended = True
            link.up.buffer.clear()
        else:
            self._end(link, reset=True)

    def _take(self, link: _Link, flow: _Flow, data: bytes) -> None:
        if not data:
            flow.ended = True
        elif flow is link.up:
            self._take_request(link, data)
        else:
            self._take_reply(link, data)

    def _take_request(self, link: _Link, data: bytes) -> None:
        link.up.buffer += data
        if self._patterns:
            # One byte less than the pattern, so that requests sent before it was armed cannot match alone.
            overlap = min(len(self._patterns[0]) - 1, len(link.recent))
            seen = link.recent[-overlap:] + data if overlap > 0 else data
            if self._patterns[0] in seen:
                self._patterns, link.marked = self._patterns[1:], True
        link.recent = (link.recent + data)[-_OVERLAP:]

    def _take_reply(self, link: _Link, data: bytes) -> None:
        if link.deaf or link.doomed is not None:
            return
        if link.marked or self._reply_delay is not None:
            self.faults += 1
            link.doomed = time.monotonic() + (0.0 if link.marked else self._reply_delay or 0.0)
        elif self.fault_rate and self._random.random() < self.fault_rate:
            self.faults += 1
            self._end(link, reset=True)
        else:
            link.down.buffer += data

    def _pass_on_ends(self, link: _Link) -> None:
        for flow in (link.up, link.down):
            silent = flow is link.down and (link.deaf or link.doomed is not None)
            if flow.ended and not flow.shut and not flow.buffer and not silent:
                flow.shut = True
                flow.target.shutdown(socket.SHUT_WR)
        if link.up.ended and link.down.ended and not link.up.buffer and not link.down.buffer:
            self._end(link, reset=link.marked)

    def _end_doomed(self) -> None:
        """End the connections that are due: stop requests, let the server finish, then close the client's side."""
        now = time.monotonic()
        for link in [each for each in self._links if each.doomed is not None and each.doomed <= now]:
            if not link.patience:
                link.patience = now + _DRAIN_SECONDS
                link.up.ended = True
                try:
                    self._pass_on_ends(link)
                except OSError:
                    self._end(link, reset=True)
            elif link.patience <= now:
                self._end(link, reset=link.marked)

    def _reset_all(self) -> None:
        for link in list(self._links):
            self._end(link, reset=True)

    def _end(self, link: _Link, *, reset: bool = False) -> None:
        self._links.discard(link)
        for each in (link.client, link.server):
            if each in self._selector.get_map():
                self._selector.unregister(each)
            if reset:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            each.close()

    def _sockets(self) -> Iterator[socket.socket]:
        yield from (self._bell, self._ear)
        if self._listener is not None:
            yield self._listener
        for link in self._links:
            yield from (link.client, link.server)


_proxies: weakref.WeakSet[Proxy] = weakref.WeakSet()


def _let_go() -> None:
    # A forked child's copy of a socket would keep the connection open after the parent closes it.
    for proxy in _proxies:
        for each in proxy._sockets():
            each.close()


os.register_at_fork(after_in_child=_let_go)
