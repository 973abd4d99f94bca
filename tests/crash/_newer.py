"""A Takeback that is still to come: a copy of the package that knows two schemas more.

One of them adds a column and an index, the other one makes a table anew. As in a real release, what describes the
tables says the same as the migrations, for both engines.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import takeback
from takeback.storage import migrate
from takeback.tables import schema
from takeback.tables.entries import ENTRY

ADDS, REBUILDS = "0002_colour.sql", "0003_entries.sql"
LATEST = migrate.latest(migrate.load()) + 2
_PACKAGE = Path(takeback.__file__).parent

_FIELD = "    message_ms: int | None\n"
_TABLE = '    called=lambda row: f"session {row.id}",\n'
_INDEX = '        Index("session_id", "scope, id", unique=True),\n'
_NEW_INDEX = '        Index("session_colour", "scope, colour", where="colour IS NOT NULL"),\n'
_ADD = """ALTER TABLE session ADD colour TEXT{collated};
CREATE INDEX session_colour ON session (scope, colour) WHERE colour IS NOT NULL;
"""
_REBUILD = """{made}
INSERT INTO entry2 ({columns}) SELECT {columns} FROM entry;
DROP TABLE entry;
ALTER TABLE entry2 RENAME TO entry;
{indexes}
"""


def make(place: Path) -> Path:
    """Copy the package, changed, into a directory; give what belongs into the path of modules."""
    package = place / "newer" / "takeback"
    shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    module = package / "tables" / "sessions.py"
    text = module.read_text()
    for old, new in (
        (_FIELD, f"{_FIELD}    colour: str | None = None\n"),
        (_TABLE, f'{_TABLE}    added=("colour",),\n'),
        (_INDEX, f"{_INDEX}{_NEW_INDEX}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module.write_text(text)
    made = schema.sqlite_table(ENTRY).partition(";\n")[0]
    on_file = {"made": made.replace("TABLE entry", "TABLE entry2") + ";", "indexes": schema.indexes(ENTRY, "sqlite")}
    like = "CREATE TABLE entry2 (LIKE entry INCLUDING DEFAULTS INCLUDING STORAGE, PRIMARY KEY (scope, key));"
    renamed = "ALTER INDEX entry2_pkey RENAME TO entry_pkey;"
    for folder, collated, parts in (
        ("storage/schema", "", on_file),
        (
            "storage/postgres/schema",
            ' COLLATE "C"',
            {"made": like, "indexes": renamed + schema.indexes(ENTRY, "postgresql")},
        ),
    ):
        (package / folder).mkdir(exist_ok=True)
        (package / folder / ADDS).write_text(_ADD.format(collated=collated))
        (package / folder / REBUILDS).write_text(_REBUILD.format(columns=ENTRY.columns, **parts))
    return package.parent


def become(newer: Path) -> None:
    """Make this process, a child, that newer Takeback; whatever it imports from now on is of it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "takeback"]:
        del sys.modules[name]
    sys.path.insert(0, str(newer))
    import takeback as found
    from takeback.storage import migrate as theirs

    assert Path(found.__file__).is_relative_to(newer)
    assert theirs.latest(theirs.load()) == LATEST
    with found.open(":memory:") as store:  # loads what forks would each load
        store.create_session().user("x")
        assert not store.verify()
