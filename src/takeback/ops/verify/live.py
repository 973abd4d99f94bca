"""What is demanded of what is under way: leases, streams and their pieces, inboxes, changes of files.

Each row must name what is there and be able to be read; pieces and sent messages have no gaps.
"""

from __future__ import annotations

from ... import presence
from ...model.message import Message
from ...storage.base import Tx
from ...tables.entries import ENTRY
from ...tables.files import JOURNAL, SEEN, JournalRow, SeenRow
from ...tables.live import DELTA, INBOX, STREAM, DeltaRow, SentRow, StreamRow
from ...tables.sessions import LEASE, LeaseRow
from ..open_streams import KINDS
from .base import UNREADABLE, Check, Rule, has, is_object
from .sessions import has_session

OF_BRANCH = "SELECT 1 FROM branch WHERE scope = ? AND bid = ? AND session = ?"
STREAM_OF = "SELECT 1 FROM stream WHERE scope = ? AND id = ?"
PIECES_OF = "SELECT count(*) FROM delta WHERE scope = ? AND stream = ?"
MISSING = "pieces of it are missing"
GAP = "the message before it is missing"
AGAIN = "Nothing is lost by it: repair makes a copy without it, and the files are read again"
UNDONE = "A change of files was under way; repair makes a copy without it: look at the files of that workspace"
TAKE = "Nobody can tell who runs the session; repair makes a copy in which nobody does"


def lease_fault(tx: Tx, row: LeaseRow) -> str:
    """Return what is wrong with a lease."""
    if not has_session(tx, row.scope, row.session):
        return "its session is missing"
    return "" if row.holder is None or is_holder(row.holder) else "its holder cannot be read"


def stream_fault(tx: Tx, row: StreamRow) -> str:
    """Return what is wrong with a stream."""
    asked = (row.scope, row.branch, row.session)
    if not has_session(tx, row.scope, row.session) or not tx.one(OF_BRANCH, asked):
        return "its session or branch is missing"
    if not is_holder(row.holder) or not is_object(row.about):
        return "what it is about cannot be read"
    return "" if tx.one(PIECES_OF, (row.scope, row.id)) == (row.pieces,) else MISSING


def piece_fault(tx: Tx, row: DeltaRow) -> str:
    """Return what is wrong with a piece."""
    if not tx.one(STREAM_OF, (row.scope, row.stream)):
        return "its stream is missing"
    if row.n != 1 and not has(tx, DELTA, row.scope, row.stream, row.n - 1):
        return "the piece before it is missing"
    return "" if _is_piece(row) else "what arrived cannot be read"


def _is_piece(row: DeltaRow) -> bool:
    try:
        row.data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return row.kind in KINDS


def sent_fault(tx: Tx, row: SentRow) -> str:
    """Return what is wrong with a message that was sent."""
    if not has_session(tx, row.scope, row.session):
        return "its session is missing"
    if row.key and not (row.body is None and has(tx, ENTRY, row.scope, row.key)):
        return "the entry that it became is missing"
    if not row.key and not _is_message(row.body):
        return "what it says cannot be read"
    return "" if row.n == 1 or has(tx, INBOX, row.scope, row.session, row.n - 1) else GAP


def _is_message(body: bytes | None) -> bool:
    """Whether a session can take in what was sent to it."""
    try:
        said = Message("", 0, 0, 0, body, None)
        return is_object(body) and said.role == "user" and bool(said.text)
    except UNREADABLE:
        return False


def is_holder(data: bytes) -> bool:
    """Whether stored bytes say who has something."""
    try:
        presence.decode(data)
    except UNREADABLE:
        return False
    return True


def journal_fault(tx: Tx, row: JournalRow) -> str:
    """Return what is wrong with a change of files under way."""
    if row.session is not None and not has_session(tx, row.scope, row.session):
        return "its session is missing"
    return "" if is_holder(row.holder) else "who makes it cannot be read"


def seen_name(row: SeenRow) -> str:
    """Name a directory as it was seen."""
    return f"directory {row.dir!r:.80} of workspace {row.place!r:.80}"


def journal_name(row: JournalRow) -> str:
    """Name a change of files."""
    return f"change of files {row.id} in workspace {row.place!r:.80}"


RULES: tuple[Check, ...] = (
    Rule(LEASE, lease_fault, "lease", TAKE),
    Rule(STREAM, stream_fault, "stream"),
    Rule(DELTA, piece_fault, "stream"),
    Rule(INBOX, sent_fault, "inbox", where=lambda row: f"sent message {row.n} of session number {row.session}"),
    Rule(SEEN, lambda tx, row: "", "seen", AGAIN, where=seen_name),
    Rule(JOURNAL, journal_fault, "journal", UNDONE, where=journal_name),
)
