"""What a process runs to do its work: each verb, a hook's event and the library pay only for what they use.

No time is measured here (``benchmarks/p10_start.py`` does that). A module counts when its code ran; one that was only
imported costs next to nothing. The numbers leave room for a module or two; one that is exceeded means that an import
at the top of a module takes a name where the module would do (``takeback/lazy.py``).
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from _world import World

pytestmark = pytest.mark.feature("F10")

# Each of these takes as long as a tenth of all the rest, or brings in what does.
HEAVY = """asyncio concurrent.futures email http importlib.metadata importlib.resources inspect ipaddress logging
multiprocessing pathlib pathspec platform psycopg random rich shutil socket sqlite3 ssl subprocess tempfile traceback
typing_extensions urllib zipfile takeback.aio takeback.portal takeback.storage.memory takeback.storage.postgres"""
WRITING = """hashlib takeback.client.store takeback.client.session takeback.client.appending takeback.storage.sqlite
takeback.storage.commit takeback.ops.entries takeback.files.workspaces takeback.context.build takeback.providers"""
PACKAGES = {"apsw", "backports", "click", "msgspec", "takeback"}
REPORT = """
import sys
ran = {name for name, module in {**sys.modules}.items() if type(module).__name__ != "_Later"} - before
print("\\n".join(sorted(ran)), file=open("ran", "w"))
"""
START = "import sys; before = {*sys.modules}\n"
RUN = f"{START}from takeback.cli import main; sys.argv[0] = 'takeback'; code = main()\n{REPORT}\nsys.exit(code)"
APPEND = f"""{START}
import takeback
with takeback.open("own.db") as store:
    store.create_session("a").user("hello")
{REPORT}"""
EVENT = {"session_id": "e1", "hook_event_name": "UserPromptSubmit", "prompt": "Fix it", "transcript_path": ""}


@pytest.fixture
def long(world: World) -> World:
    """A store with a few sessions, one of them of 20 messages."""
    with world.open() as store:
        for number in range(5):
            store.create_session(f"n{number}", workspace=world.project).user("Begin")
        s = store.create_session("long", workspace=world.project)
        for turn in range(10):
            s.user(f"Step {turn}")
            s.assistant("Done. " * 20)
    return world


def _ran(place: Path, script: str, *arguments: str, given: str = "") -> set[str]:
    """Run a script in a process of its own, and return the modules that ran there."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=place, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return {*(place / "ran").read_text().split()}


def _judge(ran: set[str], most: int, never: str) -> None:
    ours = sorted(name for name in ran if name.partition(".")[0] == "takeback")
    assert ran.isdisjoint(never.split()), sorted(ran & {*never.split()})
    assert len(ours) <= most, ours
    assert {name.partition(".")[0] for name in ran} <= {*sys.stdlib_module_names, *PACKAGES, "_sitebuiltins"}


@pytest.mark.parametrize(
    ("arguments", "most"), [("ls", 60), ("ls -a --limit 5", 60), ("show", 63), ("show long --utc", 63)]
)
def test_a_look_loads_nothing_that_writes(long: World, arguments: str, most: int) -> None:
    _judge(_ran(long.project, RUN, *arguments.split()), most, f"{HEAVY} {WRITING}")


@pytest.mark.feature("E10")
@pytest.mark.parametrize(
    ("arguments", "most"), [("search step", 83), ("search -a done --limit 5", 83), ("ls step", 84)]
)
def test_a_search_loads_little_more_and_nothing_that_writes(long: World, arguments: str, most: int) -> None:
    long.ok("search", "step")  # makes the index
    writing = WRITING.removeprefix("hashlib")  # a workspace is looked for by its digest
    _judge(_ran(long.project, RUN, *arguments.split()), most, f"{HEAVY} {writing}")


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        ("log long", 99),
        ("stats long", 95),
        ("tree long", 96),
        ("status", 115),
        ("tail long", 96),
        ("ops", 97),
        ("say long hello", 100),
        ("new other", 98),
        ("rename long title", 97),
    ],
)
def test_a_verb_loads_only_what_it_uses(long: World, arguments: str, most: int) -> None:
    ran = _ran(long.project, RUN, *arguments.split())
    _judge(ran, most, f"{HEAVY} takeback.context.build takeback.records.stream takeback.exporters takeback.importers")
    assert len({name for name in ran if name.startswith("takeback.cli.verbs.")}) <= 2


def test_an_event_of_a_hook_loads_only_what_it_uses(long: World) -> None:
    event = json.dumps({**EVENT, "cwd": str(long.project)})
    for _ in range(2):  # the first one also scans the workspace for the first time
        ran = _ran(long.project, RUN, "hook", "claude-code", given=event)
    _judge(ran, 131, HEAVY)


def test_opening_and_appending_loads_only_what_it_uses(tmp_path: Path) -> None:
    ran = _ran(tmp_path, APPEND)
    ran -= {"platform", "textwrap"}  # msgspec loads them; in the process of somebody else they are left as they are
    _judge(ran, 90, f"{HEAVY} click takeback.cli takeback.shell")


def test_importing_the_package_runs_nothing_of_it(tmp_path: Path) -> None:
    ran = _ran(tmp_path, f"{START}import takeback\n{REPORT}")
    assert {name for name in ran if name.startswith("takeback")} == {"takeback", "takeback.lazy"}
    assert ran.isdisjoint({"apsw", "click", "msgspec", *HEAVY.split()})


def test_what_was_left_out_is_there_for_whoever_needs_it() -> None:
    script = """
from takeback.cli.startup import prepare
prepare()
import msgspec, platform, sys, typing_extensions, uuid
class Said(msgspec.Struct):
    "Something\\n    that was said."
assert "that was said" in msgspec.json.schema(Said)["$defs"]["Said"]["description"]
assert platform.machine() and uuid.uuid1() and uuid.getnode()
class Table(typing_extensions.TypedDict):
    name: typing_extensions.Required[str]
    size: typing_extensions.NotRequired[int]
assert msgspec.json.decode(b'{"name": "a"}', type=Table) == {"name": "a"}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
