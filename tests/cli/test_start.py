"""How much the program loads to look around, and how long that takes beside a bare Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _world import World

pytestmark = pytest.mark.feature("F10")

LIMIT = 6.0
# What ``ls`` and ``show`` may load of the library; a folder stands for none of its modules, only for itself.
OURS = """takeback cli client model ops shell storage clock codec errors ids mounts presence
cli.consent cli.options cli.outcome cli.output cli.plain_arguments cli.read_frame cli.settings cli.startup
cli.verbs cli.verbs.listing cli.verbs.reading
client.address client.arguments client.fields client.open_to_read client.overview client.reading client.refs
client.store_reading storage.runner
shell.documents shell.failures shell.times
model.branch model.entry model.message model.page model.session model.status model.tools model.usage model.words
ops.branches ops.listing ops.log ops.open_streams ops.refs ops.sessions
tables tables.branches tables.entries tables.live tables.sessions tables.store tables.table
storage.base storage.connection storage.files storage.guard storage.migrate storage.sqlite_reader"""
ALLOWED = {each if each == "takeback" else f"takeback.{each}" for each in OURS.split()}
PACKAGES = {"apsw", "msgspec", "takeback"}
# Each of these takes as long as a tenth of all the rest, or brings in what does.
HEAVY = """asyncio click concurrent ctypes email hashlib http importlib.metadata importlib.resources inspect ipaddress
json logging multiprocessing pathlib platform psycopg random rich shutil socket sqlite3 subprocess tempfile threading
traceback typing_extensions urllib zipfile"""
SAID = """
import sys
sys.argv = ["takeback", *sys.argv[1:]]
before = {*sys.modules}
from takeback.cli import main
code = main()
print("\\n".join(sorted({*sys.modules} - before)), file=open("loaded", "w"))
sys.exit(code)
"""


@pytest.fixture
def long(world: World) -> World:
    """A store with a few sessions, one of them of 200 messages."""
    with world.open() as store:
        for number in range(20):
            store.create_session(f"n{number}", workspace=world.project).user("Begin")
        s = store.create_session("long", workspace=world.project)
        for turn in range(100):
            s.user(f"Step {turn}")
            s.assistant("Done. " * 20)
    return world


@pytest.mark.parametrize("arguments", [["ls"], ["ls", "-a", "--limit", "5"], ["show"], ["show", "long", "--utc"]])
def test_a_look_loads_little(long: World, tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-c", SAID, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    loaded = {*(long.project / "loaded").read_text().split()}
    assert {each for each in loaded if each.split(".")[0] == "takeback"} <= ALLOWED
    assert loaded.isdisjoint(HEAVY.split())
    known = {*sys.stdlib_module_names, *PACKAGES}
    assert {each.split(".")[0] for each in loaded} <= known | {"_sitebuiltins"}


def test_the_list_of_what_may_be_loaded_holds_nothing_that_is_not(long: World) -> None:
    seen = set[str]()
    for arguments in (["ls"], ["show", "long"]):
        subprocess.run([sys.executable, "-c", SAID, *arguments], capture_output=True, timeout=60, check=True)
        seen |= {*(long.project / "loaded").read_text().split()}
    assert seen >= ALLOWED


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "wait4"), reason="the system does not say what a process took")
@pytest.mark.parametrize("arguments", [["ls"], ["show", "long"]])
def test_a_look_starts_in_less_than_six_times_a_bare_python(long: World, tmp_path: Path, arguments: list[str]) -> None:
    """The least processor time of runs that take turns: a busy machine makes each wait, and both work as much as ever.

    Few runs are enough on a machine that does nothing else; where others work, the best of more of them counts.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path / "compiled")
    bare, look = [sys.executable, "-c", "pass"], [sys.executable, "-m", "takeback", *arguments]
    for command in (bare, look):
        _seconds(command, environment)  # compiles what it loads
    taken: dict[str, list[float]] = {"bare": [], "look": []}
    for _ in range(6):
        for _ in range(8):
            taken["bare"].append(_seconds(bare, environment))
            taken["look"].append(_seconds(look, environment))
        ratio = min(taken["look"]) / min(taken["bare"])
        if ratio <= LIMIT:
            return
    pytest.fail(f"{ratio:.2f} times a bare Python; at most {LIMIT} are allowed")


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    """Return the processor time of a process."""
    started = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode == 0
    return used.ru_utime + used.ru_stime


def test_what_was_left_out_while_loading_is_there_for_whoever_needs_it() -> None:
    script = """
from takeback.cli.startup import _load_msgspec
_load_msgspec()
import msgspec, platform, sys, typing, uuid
class Said(msgspec.Struct):
    "Something\\n    that was said."
assert "that was said" in msgspec.json.schema(Said)["$defs"]["Said"]["description"]
assert platform.machine() and uuid.uuid1() and uuid.getnode()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
