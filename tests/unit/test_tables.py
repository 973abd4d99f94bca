"""A table is described once: nobody else lists columns, seals rows or takes them apart by number."""

import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

import takeback
from takeback.tables import schema
from takeback.tables.sessions import SESSION, SessionRow
from takeback.tables.table import Table, packed

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "takeback"
ELSEWHERE = sorted(path for path in SOURCE.rglob("*.py") if "tables" not in path.parts and "testing" not in path.parts)


def found(pattern: str, *, among: list[Path] = ELSEWHERE) -> list[str]:
    lines = ((path, number, line) for path in among for number, line in enumerate(path.read_text().split("\n"), 1))
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for path, number, line in lines if re.search(pattern, line)
    ]


def test_no_row_is_taken_apart_by_number() -> None:
    assert not found(r"\brow\[-?\d+\]|\brow\[-?\d*:-?\d*\]"), "rows have fields with names"


def test_only_the_descriptors_seal_rows() -> None:
    assert not found(r"\brow_check\(|crc32\(.*pack")


def test_nobody_writes_an_insert_or_lists_columns_again() -> None:
    # PostgreSQL's own, and the full-text tables of the search index, which take commands as rows.
    own_tables = r"(?!\{schema\}\.epoch|(found|part|word|\{table\})\b|\{table\})"
    assert not found(rf"INSERT (OR \w+ )?INTO {own_tables}\S+ ")
    for table in schema.TABLES:
        listed = ", ".join(table.stored[1:5])
        assert not found(re.escape(listed)), f"{table.name}: {listed}"


def test_records_are_put_in_one_place() -> None:
    """One sink: copies, imports and repairs put records through it, and no other module of theirs writes rows."""
    rooms = [path for room in ("records", "importers", "exporters") for path in (SOURCE / room).rglob("*.py")]
    rooms += [SOURCE / "client" / name for name in ("copying.py", "repairing.py", "backup.py")]
    writes = found(r"(?<!_putting)\.(put|put_many|upsert|insert)\(tx\b", among=rooms)
    writers = {line.split(":")[0].removeprefix("src/takeback/") for line in writes}
    assert writers == {f"records/{name}.py" for name in ("write", "agents", "documents", "timelines")}, writers
    sinks = found(r"\bSink\((?!Protocol)", among=ELSEWHERE)
    assert {line.split(":")[0].removeprefix("src/takeback/") for line in sinks} == {
        "client/copying.py",
        "client/repairing.py",
        "importers/jsonl.py",
    }


def test_the_schema_is_what_the_descriptors_say() -> None:
    database = apsw.Connection(":memory:")
    database.execute(schema.sqlite()).fetchall()
    for table in schema.TABLES:
        columns = [row[0] for row in database.execute("SELECT name FROM pragma_table_info(?)", (table.name,))]
        assert tuple(columns) == table.stored


def test_postgresql_has_the_same_columns_in_an_order_of_its_own() -> None:
    for table in schema.TABLES:
        made = schema._postgres_table(table)
        columns = re.findall(r"^  ([a-z_]+) +(?:BIGINT|TEXT|BYTEA)", made, re.MULTILINE)
        assert sorted(columns) == sorted(table.stored)
        assert tuple(columns[len(columns) - len(table.moving) :]) == table.moving


def test_the_scope_leads_every_key_and_every_index() -> None:
    for table in schema.TABLES:
        assert table.local or table.key[0] == "scope", table
        for index in table.indexes:
            assert index.columns.startswith("scope, "), index


def test_a_packed_field_and_an_added_column_are_sealed() -> None:
    row = _some_session()
    stored = SESSION.seal(row)
    assert SESSION.checked(stored) == row
    changed = SESSION.seal(row._replace(revision=row.revision + 1))
    assert not SESSION.is_sound((*changed[:-1], stored[-1]))
    before, behind = SESSION.around(row, "updated", SESSION.rest_of(row))
    assert zlib.crc32(before + packed((row.updated,))[1:] + behind) == stored[-1]


class Older(NamedTuple):
    scope: str
    number: int
    first: str


class Newer(NamedTuple):
    scope: str
    number: int
    first: str
    second: int = 7


def test_a_packed_field_that_a_row_was_written_without_has_its_default() -> None:
    older = Table("t", Older, key="scope, number", number="number", called=str, packed=("first",))
    newer = Table("t", Newer, key="scope, number", number="number", called=str, packed=("first", "second"))
    stored = older.seal(Older("", 1, "a"))
    assert newer.checked(stored) == newer.unchecked(stored) == Newer("", 1, "a", 7)
    assert newer.checked(newer.seal(Newer("", 1, "a", 8))).second == 8


def _some_session() -> SessionRow:
    with takeback.open(":memory:") as store:
        made = store.create_session(tags=["red"])
        return store._read(lambda tx: SESSION.one(tx, "WHERE scope = ? AND id = ?", ("", made.id)))


# ---------------------------------------------------------------------- a new column

ADDED = "    message_ms: int | None\n"
DESCRIBED = '    called=lambda row: f"session {row.id}",\n'
MIGRATION = "ALTER TABLE session ADD colour TEXT{collated};\n"
USE = """
import sys, takeback
from takeback.ops import sessions
path, wanted = sys.argv[1:]
with takeback.open(path) as store:
    for session in store.list_sessions():
        row = store._read(lambda tx: sessions.get(tx, "", session.id))
        assert row.colour is None, row
        store._backend.write(lambda tx: sessions.write(tx, row, colour=wanted))
        assert store._read(lambda tx: sessions.get(tx, "", session.id)).colour == wanted
        session.refresh().user("after")
    assert not store.verify(), str(store.verify())
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A copy of the package in which a session has a colour: one module changed, and a migration."""
    package = tmp_path / "src" / "takeback"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    module = package / "tables" / "sessions.py"
    text = module.read_text()
    assert text.count(ADDED) == text.count(DESCRIBED) == 1
    text = text.replace(ADDED, f"{ADDED}    colour: str | None = None\n")
    module.write_text(text.replace(DESCRIBED, f'{DESCRIBED}    added=("colour",),\n'))
    for folder, collated in (("storage/schema", ""), ("storage/postgres/schema", ' COLLATE "C"')):
        (package / folder).mkdir(exist_ok=True)
        (package / folder / "0002_colour.sql").write_text(MIGRATION.format(collated=collated))
    return tmp_path / "src"


def run(other: Path, *args: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(other)}
    done = subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.promise("R22")
def test_a_column_is_added_in_one_module_and_a_migration(other: Path, tmp_path: Path) -> None:
    """A store of this version opens with the other one, its rows still match their checks, and the column holds."""
    path = tmp_path / "work.db"
    with takeback.open(path) as store:
        for number in range(3):
            store.create_session(title=f"session {number}", tags=["red"]).user("before")
    run(other, "-c", USE, str(path), "blue")
    with pytest.raises(takeback.SchemaTooNew):
        takeback.open(path)


@pytest.mark.slow
@pytest.mark.promise("R22")
def test_the_contract_holds_with_the_added_column(other: Path) -> None:
    wanted = "TestMemory and (session or append or branch or rewind or tag or list)"
    run(other, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_sqlite.py", "-k", wanted)
