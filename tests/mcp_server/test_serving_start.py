"""The SDK of the protocol costs most of a second, so only the server itself pays for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import takeback
from takeback.cli import frame, settings
from takeback.cli.verbs import serving
from takeback.errors import Unsupported

pytestmark = pytest.mark.feature("F10")

LOADED = """
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
import takeback, takeback.tools
from takeback.cli import main
code = main(["--store", sys.argv[1], "ls", "-a"]) or main(["mcp", "--help"]) or main(["--help"])
print(code, sorted(name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types", "pydantic", "uvicorn")))
"""


def test_neither_the_library_nor_another_verb_nor_help_imports_the_sdk(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        store.create_session("a").user("hello")
    command = [sys.executable, "-c", LOADED, str(tmp_path / "s.db")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines()[-1] == "0 []", ran.stderr


@contextmanager
def _opened(tmp_path: Path, place: Path, allow: tuple[str, ...]) -> Iterator[takeback.Store]:
    given = settings.Settings()
    given.store, given.directory = str(tmp_path / "store.db"), str(place)
    with frame.Frame(given, changes=bool(allow), makes=True) as running, ExitStack() as opened:
        yield serving._tools(running, allow, "main", opened)["list_sessions"]._here.store


def test_without_a_permission_the_store_is_opened_to_be_read(tmp_path: Path, place: Path) -> None:
    for _ in ("it is made", "it is there"):
        with _opened(tmp_path, place, ()) as store:
            assert store.capabilities.read_only
            with pytest.raises(Unsupported):
                store.create_session("a")
    with _opened(tmp_path, place, ("state",)) as store:
        assert not store.capabilities.read_only
        store.create_session("a")
