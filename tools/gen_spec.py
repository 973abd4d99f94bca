"""Fill the generated parts of docs/SPEC.md: schema, statements, test vectors. ``--check`` only compares.

The specification shows what runs, because it is written from what runs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

from takeback.model.entry import Numbers
from takeback.ops import (
    agent_checkpoints,
    agents,
    blobs,
    branches,
    calls,
    chain,
    checkpoint_rows,
    checkpoints,
    entries,
    feed,
    inbox,
    journal,
    leases,
    log,
    open_streams,
    operations,
    sessions,
    snapshots,
    streams,
    sweep,
)
from takeback.storage import base

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "docs" / "SPEC.md"
SCHEMA = ROOT / "src" / "takeback" / "storage" / "schema"

OPERATIONS: dict[str, list[tuple[ModuleType | dict[str, str], str]]] = {
    "create an agent, and every next version of it": [
        (agents, "GET"),
        (base.NEXT, "agent"),
        (agents, "INSERT"),
        (agents, "UPDATE"),
        (agents, "ADD_VERSION"),
        (agents, "STATE_AT"),
    ],
    "create a session": [
        (sessions, "BY_NAME"),
        (sessions, "BY_KEY"),
        (sessions, "BY_LABEL"),
        (base.NEXT, "session"),
        (sessions, "INSERT"),
        (sessions, "PUT_DETAIL"),
        (base.NEXT, "branch"),
        (branches, "INSERT"),
        (feed, "LAST"),
        (feed, "INSERT"),
        (sessions, "MOVE_UP"),
    ],
    "append (INSERT once per entry; MOVE_UP instead of MOVE if another session changed last)": [
        (sessions, "GET"),
        (entries, "FIND_KEY"),
        (entries, "INSERT"),
        (entries, "ADD_LINK"),
        (entries, "ADD_CALL"),
        (feed, "LAST"),
        (feed, "INSERT"),
        (entries, "KEEP_KEY"),
        (sessions, "SET_COLD"),
        (sessions, "MOVE"),
    ],
    "read a range of a path (READ within one branch, PATH and READ_PATH across several)": [
        (sessions, "GET"),
        (branches, "GET"),
        (log, "READ"),
        (branches, "PATH"),
        (log, "READ_PATH"),
    ],
    "find an entry, or the totals at a point": [(log, "BY_MID"), (log, "POINT")],
    "find the tool calls of a path, range by range": [(calls, "BACK"), (calls, "BETWEEN")],
    "fork": [
        (sessions, "GET"),
        (branches, "BY_NAME"),
        (branches, "GET"),
        (branches, "INSERT"),
        (branches, "SET_HIDDEN"),
        (sessions, "MOVE"),
    ],
    "checkpoint": [
        (sessions, "GET"),
        (checkpoint_rows, "BY_NAME"),
        (base.NEXT, "checkpoint"),
        (checkpoints, "INSERT"),
        (sessions, "MOVE"),
    ],
    "checkpoint of an agent (PUT_PIN once per session that changed; CHANGED_AMONG where several write at once)": [
        (agents, "GET"),
        (agent_checkpoints, "LAST"),
        (agents, "STATE_AT"),
        (feed, "INSERT"),
        (agent_checkpoints, "CHANGED"),
        (agent_checkpoints, "CHANGED_AMONG"),
        (agent_checkpoints, "IN_FORCE"),
        (branches, "GET"),
        (log, "POINT"),
        (base.NEXT, "agent_checkpoint"),
        (agent_checkpoints, "INSERT"),
        (agent_checkpoints, "PUT_PIN"),
    ],
    "restore a checkpoint of an agent": [
        (agent_checkpoints, "BY_ID"),
        (agent_checkpoints, "ALL_IN_FORCE"),
        (agent_checkpoints, "CHANGED"),
        (sessions, "BY_NUMBER"),
        (sessions, "GET_LEASE"),
        (sessions, "MOVE"),
        (base.NEXT, "operation"),
        (operations, "INSERT"),
    ],
    "delete a checkpoint of an agent": [
        (agent_checkpoints, "NEXT"),
        (agent_checkpoints, "PINS"),
        (agent_checkpoints, "DROP_PINS"),
        (agent_checkpoints, "DROP_PIN"),
        (agent_checkpoints, "PUT_PIN"),
        (agent_checkpoints, "SET"),
        (agent_checkpoints, "DELETE"),
    ],
    "rewind, switch, rename, delete, restore and so on": [
        (sessions, "GET"),
        (branches, "BY_UID"),
        (branches, "SET_TIP"),
        (log, "POINT"),
        (sessions, "SET_COLD"),
        (sessions, "MOVE"),
        (base.NEXT, "operation"),
        (operations, "INSERT"),
    ],
    "undo and redo": [
        (operations, "STANDING"),
        (operations, "LAST_UNDO"),
        (operations, "SINCE"),
        (operations, "SET_UNDONE"),
    ],
    "read a session with its details and its lease": [(sessions, "WHOLE")],
    "take a session or give it back (beside streams and statuses), and leave a sign of life": [
        (sessions, "GET"),
        (sessions, "GET_LEASE"),
        (leases, "PUT"),
        (feed, "INSERT"),
        (sessions, "MOVE"),
        (leases, "BEAT"),
    ],
    "stream an answer (ADD once per piece, then an append, DROP and DROP_PIECES)": [
        (streams, "PUT"),
        (streams, "GET"),
        (streams, "ADD"),
        (open_streams, "PIECES"),
        (streams, "DROP"),
        (streams, "DROP_PIECES"),
        (streams, "DROP_FROM"),
        (open_streams, "OF_SESSION"),
        (open_streams, "LAST"),
    ],
    "send to a session, and receive (an append, and RECEIVED once per message)": [
        (inbox, "LAST"),
        (inbox, "PUT"),
        (feed, "INSERT"),
        (sessions, "MOVE"),
        (inbox, "BACK"),
        (inbox, "RECEIVED"),
    ],
    "look at a workspace (beside an append; PUT_SEEN or DROP_SEEN once per directory that changed)": [
        (snapshots, "GET_SEEN"),
        (snapshots, "ALL_SEEN"),
        (snapshots, "PUT_SEEN"),
        (snapshots, "DROP_SEEN"),
    ],
    "change files (PUT before, DROP with the operation), and take back what was left half done": [
        (journal, "GET"),
        (journal, "PUT"),
        (journal, "TAKE"),
        (journal, "DROP"),
    ],
    "sweep out contents that nothing needs": [(sweep, "LINKED"), (sweep, "ROOTS"), (sweep, "STORED")],
    "list branches": [(branches, "OF_SESSION")],
    "follow the feed": [(feed, "AFTER"), (sessions, "BY_NUMBER"), (branches, "GET"), (agents, "BY_NUMBER")],
    "store a blob (ADD_CHUNK once per chunk, each in a transaction of its own)": [
        (blobs, "FIND"),
        (base.NEXT, "blob"),
        (blobs, "BEGIN"),
        (blobs, "ADD_CHUNK"),
        (blobs, "FINISH"),
        (blobs, "DROP_CHUNKS"),
        (blobs, "DROP"),
    ],
    "read a blob": [(blobs, "FIND"), (blobs, "GET_CHUNK")],
}


def schema() -> str:
    """Give all schema files as one block."""
    text = "\n".join(path.read_text("utf-8").strip() for path in sorted(SCHEMA.glob("*.sql")))
    return f"```sql\n{text}\n```"


def statements() -> str:
    """Give the statements of each operation."""
    parts = []
    for title, names in OPERATIONS.items():
        texts = (each[name] if isinstance(each, dict) else getattr(each, name) for each, name in names)
        sql = ";\n".join(re.sub(r"\s*\n\s*", "\n  ", text) for text in texts)
        parts.append(f"**{title[0].upper()}{title[1:]}**\n\n```sql\n{sql};\n```")
    return "\n\n".join(parts)


def vectors() -> str:
    """Compute the table of test vectors."""
    rows, previous, salt = [], chain.GENESIS, bytes(range(16))
    given = [
        (b'{"role":"user","content":"hello"}', None, 1, 1_700_000_000_000, Numbers(messages=1, turns=1)),
        (b"{}", b'{"b": 1, "a": "\xc3\xa4"}', 2, -1, Numbers(2, 1, 0, 0, 7, 5, 3, 1, 2, 12_500_000, 1500, 0)),
    ]
    for body, raw, seq, at_ms, numbers in given:
        content = chain.body_hash(salt, body, raw)
        head = chain.header("0123456789abcdefghjkmnpqr", seq, "message", at_ms, numbers)
        previous = chain.entry_hash(previous, head, content)
        shown = "none" if raw is None else f"`{raw.decode()}`"
        rows.append(f"| `{body.decode()}` | {shown} | `{content.hex()}` | `{previous.hex()}` |")
    return "\n".join(["| body | raw | body_hash | entry_hash |", "|---|---|---|---|", *rows])


def fill(text: str) -> str:
    """Replace what stands behind each marker."""
    for marker, content in (("vectors", vectors()), ("schema", schema()), ("statements", statements())):
        begin, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
        block = f"{begin}\n\n{content}\n\n{end}"
        pattern = re.escape(begin) + r"(?:\n.*?" + re.escape(end) + ")?"
        text = re.sub(pattern, lambda _, block=block: block, text, count=1, flags=re.S)
    return text


def main() -> int:
    """Write the page, or compare it."""
    old = SPEC.read_text("utf-8")
    new = fill(old)
    if "--check" in sys.argv:
        if old != new:
            print("docs/SPEC.md is not what the code says: run python tools/gen_spec.py", file=sys.stderr)
        return int(old != new)
    SPEC.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
