"""The inbox of a session: messages that others sent and the session has not received yet.

Sending is durable and ordered, and the number sent is stored beside the session, so a lost message is noticed.
Receiving appends the messages to the log and marks them received in one transaction, so each becomes exactly one
entry, whichever process receives it and whenever that process dies.
"""

from __future__ import annotations

from .. import codec
from ..errors import Corrupt
from ..model.entry import Draft, Numbers
from ..model.message import MESSAGE
from ..model.status import require_open
from ..storage.base import Tx
from ..tables.live import INBOX
from ..tables.live import SentRow as SentRow
from . import entries, feed, idempotency, sessions
from .idempotency import ApiCall
from .sessions import SessionRow

LAST = "SELECT coalesce(max(n), 0) FROM inbox WHERE scope = ? AND session = ?"
BACK = "WHERE scope = ? AND session = ? AND n < ? ORDER BY n DESC LIMIT ?"
_PAGE = 200


def send(tx: Tx, session: SessionRow, sent: SentRow, *, now_ms: int) -> tuple[SessionRow, SentRow]:
    """Queue a message after those that wait; a finished session raises ``Conflict``."""
    require_open(session.status)
    (last,) = tx.one(LAST, (session.scope, session.sid)) or (0,)
    sent = INBOX.put(tx, sent._replace(scope=session.scope, session=session.sid, n=last + 1))
    about = sessions.decoded(sessions.detail(tx, session))
    sessions.put_detail(tx, session, codec.encode({**about, "sent": sent.n}))
    position, rank = feed.record(
        tx, session, "inbox", branch=session.branch, first=session.seq, last=session.seq, now_ms=now_ms
    )
    return sessions.write(tx, session, **sessions.placed(session, position, rank, now_ms)), sent


def send_once(tx: Tx, session_id: str, call: ApiCall, sent: SentRow) -> SentRow:
    """Send a message to a session, once per idempotency key."""
    session = entries.writable(tx, sent.scope, session_id)

    def do() -> tuple[SentRow, str]:
        made = send(tx, session, sent, now_ms=call.now_ms)[1]
        return made, made.id

    def again(made: str) -> SentRow:
        return by_id(tx, session, made)

    return idempotency.once(tx, session.scope, session.sid, call, kind="message", do=do, again=again)


def by_id(tx: Tx, session: SessionRow, sent_id: str) -> SentRow:
    """Return a message that was sent, whether received or not."""
    found = INBOX.one(tx, "WHERE scope = ? AND session = ? AND id = ?", (session.scope, session.sid, sent_id))
    if found is None:
        raise Corrupt(f"the record of the sent message {sent_id} is missing", what=f"session {session.id}")
    return found


def waiting(tx: Tx, session: SessionRow, limit: int | None = None) -> list[SentRow]:
    """Return the waiting messages in the order they were sent.

    Messages are received in order, so the waiting ones come last: reading backwards stops at a received one. From there
    on, or else from the first one ever sent, none may be missing.
    """
    read, first = list[SentRow](), 1 << 62
    while rows := INBOX.all(tx, BACK, (session.scope, session.sid, first, _PAGE)):
        read += rows
        if len(rows) < _PAGE or rows[-1].key:
            break
        first = rows[-1].n
    read.reverse()
    sent = sessions.decoded(sessions.detail(tx, session)).get("sent", 0)
    first, last = (read[0].n if read[0].key else 1, read[-1].n) if read else (1, 0)
    if [row.n for row in read] != [*range(first, max(last, sent) + 1)]:
        raise Corrupt("a message that was sent is missing; run verify", what=f"inbox of session {session.id}")
    return [row for row in read if not row.key][: limit or _PAGE]


def receive_waiting(
    tx: Tx, scope: str, session_id: str, limit: int | None, *, now_ms: int
) -> tuple[entries.Appended, list[Draft]] | None:
    """Receive the waiting messages; None if there are none."""
    session = entries.writable(tx, scope, session_id)
    found = waiting(tx, session, limit)
    return receive(tx, session, found, now_ms=now_ms) if found else None


def receive(tx: Tx, session: SessionRow, found: list[SentRow], *, now_ms: int) -> tuple[entries.Appended, list[Draft]]:
    """Append waiting messages as user messages, and mark them received."""
    drafts = [Draft(MESSAGE, sent.body or b"", adds=Numbers(messages=1, turns=1)) for sent in found]
    done = entries.append(tx, session, drafts, now_ms=now_ms)
    for place, sent in enumerate(found, done.first):
        INBOX.update(tx, sent, sent._replace(body=None, key=entries.key_of(done.session.branch, place)))
    return done, drafts
