"""Check the docs: links work, public names are described, generated files are current, examples run.

All Python and console blocks of a page are one program: they share a namespace, a shell and a fresh directory, in
page order. A page that defines tests is run by pytest. A line that says what it prints (``print(x)  # 42``) must print
that; a command (``$ takeback ls``) must write the lines below it. A block that cannot run is marked ``not-run`` after
its language; one that names a file there (``python examples/quick_start.py``) must be the text of that file.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import takeback
from takeback import tools
from takeback.testing import postgres
from takeback.tools.table import TOOLS as TOOLS_BY_NAME

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^(#+) (.*)$", re.M)
SPAN = re.compile(r"`([^`]+)`")
PRINTED = re.compile(r"^ *print\(.*\)  +# (.*)$")
HANDLES = (
    "Store",
    "Session",
    "Agent",
    "AgentState",
    "SessionState",
    "ToolRun",
    "Stream",
    "Rewind",
    "Workspace",
    "Attachment",
    "Documents",
)
TOOLS = ("Toolbox", "Tool", "ToolReply")  # the classes of takeback.tools
EVERY_VALUE = {"to_dict", "from_dict"}  # what the reference describes once, for all values


def pages() -> list[Path]:
    """List every Markdown page of the project."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


# ---------------------------------------------------------------------- links


def broken_links() -> list[str]:
    """Find relative links to pages and headings that do not exist."""
    found = []
    for page in pages():
        for target, anchor in LINK.findall(_prose(page)):
            if "://" in target:
                continue
            there = page.parent / target if target else page
            if not there.exists():
                found.append(f"{page.relative_to(ROOT)}: link to {target} leads nowhere")
            elif anchor and there.suffix == ".md" and anchor not in _anchors(there):
                found.append(f"{page.relative_to(ROOT)}: {target} has no heading #{anchor}")
    return found


def _anchors(page: Path) -> set[str]:
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for _, title in HEADING.findall(_prose(page))}


def _prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)


# ---------------------------------------------------------------------- names


def undocumented() -> list[str]:
    """Find public names, members and fields that the reference leaves out or that have no docstring."""
    reference = (ROOT / "docs" / "reference.md").read_text("utf-8")
    everywhere, found = _words(reference), []
    for name in takeback.__all__:
        thing = getattr(takeback, name)
        if name not in everywhere:
            found.append(f"docs/reference.md does not mention {name}")
        if not inspect.isclass(thing) or issubclass(thing, BaseException):
            continue
        found += [f"takeback.{name}.{member} has no docstring" for member in _bare(thing)]
        if name.startswith("Async"):
            continue
        described = _words(_section(reference, name) if name in HANDLES else _row(reference, name))
        missing = [member for member in members(thing) if member not in described | EVERY_VALUE]
        found += [f"docs/reference.md does not describe {name}.{member}" for member in missing]
    return found + _undocumented_tools(reference)


def _undocumented_tools(reference: str) -> list[str]:
    """Find names and members of ``takeback.tools``, and tools, that the reference leaves out."""
    described = _words(_section(reference, "tools"))
    names = [*tools.__all__, *TOOLS_BY_NAME, *(member for name in TOOLS for member in members(getattr(tools, name)))]
    bare = [f"takeback.tools.{name}.{each} has no docstring" for name in TOOLS for each in _bare(getattr(tools, name))]
    return bare + [
        f"docs/reference.md does not mention {name} of takeback.tools" for name in names if name not in described
    ]


def members(cls: type) -> list[str]:
    """List the public names of a class: methods, properties, fields and declared attributes, but none of builtins."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("takeback")]
    declared = {name for base in bases for name in vars(base).get("__annotations__", {})}
    own = {name for base in bases for name in vars(base)} | declared
    return sorted(name for name in own if not name.startswith("_"))


def _bare(cls: type) -> Iterator[str]:
    for member in members(cls):
        value = getattr(cls, member, None)
        if (inspect.isfunction(value) or isinstance(value, property)) and not inspect.getdoc(value):
            yield member


def _words(text: str) -> set[str]:
    return {word for span in SPAN.findall(text) for word in re.findall(r"\w+", span)}


def _section(reference: str, name: str) -> str:
    """Return the text below the heading of a handle, up to the next heading."""
    for heading in HEADING.finditer(reference):
        if name in _words(heading.group(2)):
            rest = reference[heading.end() :]
            following = HEADING.search(rest)
            return rest[: following.start()] if following else rest
    return ""


def _row(reference: str, name: str) -> str:
    """Return the table row that begins with a value's name."""
    return next((line for line in reference.splitlines() if line.startswith(f"| `{name}` ")), "")


def missing_twins() -> list[str]:
    """Find members of a handle that its async twin lacks, or the other way round."""
    found = []
    for name in HANDLES:
        blocking, awaitable = set(members(getattr(takeback, name))), set(members(getattr(takeback, f"Async{name}")))
        blocking -= {"from_dict"}  # it makes a value, and a value is no twin
        found += [f"Async{name} has no {member}" for member in sorted(blocking - awaitable)]
        found += [f"{name} has no {member}" for member in sorted(awaitable - blocking)]
    return found


# ---------------------------------------------------------------------- generated files


def stale() -> list[str]:
    """Find generated files that no longer match the code."""
    made = {
        "gen_spec.py": "docs/SPEC.md",
        "gen_aio.py": "src/takeback/aio.py",
        "gen_architecture.py": "docs/architecture.md",
    }
    return [f"{target} is stale: run python tools/{tool}" for tool, target in made.items() if _fails(tool)]


def _fails(tool: str) -> bool:
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    return subprocess.run(command, check=False, capture_output=True).returncode != 0


# ---------------------------------------------------------------------- examples


class Block(NamedTuple):
    """A fenced block: the words after its fence, the line of its text, the text."""

    info: str
    line: int
    text: str

    @property
    def runs(self) -> bool:
        """Whether it is part of the page's program."""
        return self.info in ("python", "console")


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    begun, info = None, ""
    lines = page.read_text("utf-8").splitlines()
    for at, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if begun is None:
            begun, info = at + 1, line.removeprefix("```").strip()
        else:
            yield Block(info, begun + 1, "\n".join(lines[begun:at]))
            begun = None


def copies() -> dict[str, str]:
    """Return the blocks that name a file, by that name."""
    found = [block for page in pages() for block in blocks(page)]
    return {block.info.partition(" ")[2]: block.text for block in found if block.info.endswith(".py")}


def differing_copies() -> list[str]:
    """Find blocks that name a file and are not its text."""
    return [
        f"a block that names {name} is not its text"
        for name, text in copies().items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text("utf-8").rstrip("\n") != text
    ]


def pages_with_code() -> list[Path]:
    """List the pages that contain blocks that run."""
    return [page for page in pages() if any(block.runs for block in blocks(page))]


def not_run() -> list[str]:
    """List the blocks that are marked as not run."""
    return [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in pages()
        for block in blocks(page)
        if block.info.endswith("not-run")
    ]


def program(page: Path) -> str:
    """Return the blocks of a page that run as one program, with the line numbers of the page."""
    lines = [""] * len(page.read_text("utf-8").splitlines())
    for block in blocks(page):
        if block.info == "python":
            lines[block.line - 1 : block.line - 1 + block.text.count("\n") + 1] = block.text.split("\n")
        elif block.info == "console":
            lines[block.line - 1] = f"import page_console; page_console.run({block.text!r}, {block.line})"
    return "\n".join(lines)


@cache
def _server() -> postgres.Server:
    return postgres.find_server()


def database(page: str) -> str:
    """Create a database for a page's examples, for a role that is not a superuser, and return its URL."""
    import psycopg

    name, role = f"docs_{page.lower()}_{os.getpid()}", "takeback_docs"
    with psycopg.connect(_server().dsn(), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
            connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"CREATE DATABASE {name} OWNER {role}")  # type: ignore[arg-type]
    return _server().dsn(name, role)


def broken_example(page: Path, folder: Path) -> str:
    """Run the blocks of a page in a directory; return what went wrong, or an empty string."""
    code = program(page)
    has_tests = re.search(r"^(def test_|class Test)", code, re.M) is not None
    script = folder / f"test_{page.stem.lower()}.py"
    script.write_text(code, "utf-8")
    runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if has_tests else ["-X", "dev", "-W", "error"]
    command = [sys.executable, *runner, script.name]
    with tempfile.TemporaryDirectory() as home:
        given = {**_environment(home), **({"DATABASE_URL": database(page.stem)} if "DATABASE_URL" in code else {})}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=given)
    if done.returncode:
        return f"{page.relative_to(ROOT)}: {(done.stdout if has_tests else done.stderr).strip()}"
    said = "" if has_tests else _not_printed(code, done.stdout)
    return said and f"{page.relative_to(ROOT)}: {said}"


def _environment(home: str) -> dict[str, str]:
    """Return the environment of a page's program: our tools on the path, and an empty default store."""
    paths = [str(ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "XDG_DATA_HOME": home}


def _not_printed(code: str, output: str) -> str:
    """Return the first difference between what the page says is printed and what was, in order."""
    left = iter(output.splitlines())
    for number, line in enumerate(code.splitlines(), 1):
        said = PRINTED.match(line)
        if said and said.group(1) not in left:
            return f"line {number} does not print {said.group(1)!r}"
    return ""


def broken_examples() -> list[str]:
    """Run the examples of every page, each in its own directory."""
    found = []
    for page in pages_with_code():
        with tempfile.TemporaryDirectory() as folder:
            found.append(broken_example(page, Path(folder)))
    return [problem for problem in found if problem]


def main() -> int:
    """Print all problems."""
    problems = [*broken_links(), *undocumented(), *missing_twins(), *stale(), *differing_copies(), *broken_examples()]
    print("\n".join(problems) or f"{len(pages())} pages checked, {len(pages_with_code())} with examples, no problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
