"""My agent's shell broke five files, and one edit among them is mine: how do I take back only what the agent did?

A scripted agent runs a shell that Takeback knows nothing about; meanwhile you edit a sixth file. The rewind is
previewed, applied, undone, and redone by a new process. No git is needed.
"""

import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

import takeback

BREAK = """
sed -i 's/retry(3)/retry(0)/' pool.py
echo 'import nothing' > api.py
rm tests/test_pool.py
chmod 600 run.sh
mkdir old && mv notes.md old/notes.md
"""


def hashes(folder: Path) -> dict[str, str]:
    """Return the names, modes and hashes of the files in a directory."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        f"{path.relative_to(folder)} {path.stat().st_mode & 0o777:o}": sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def shell(session: takeback.Session, command: str, folder: Path) -> None:
    """Run a command as a tool of the agent: any tool will do, and it need not announce which files it changes."""
    with session.tool("bash", {"command": command}) as running:
        done = subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True, text=True)
        running.result(done.stdout)


with tempfile.TemporaryDirectory() as scratch:
    folder, path = Path(scratch, "project"), f"{scratch}/work.db"
    (folder / "tests").mkdir(parents=True)
    for name in ("pool.py", "api.py", "tests/test_pool.py", "run.sh", "notes.md", "yours.py"):
        (folder / name).write_text(f"# {name}\n" + "retry(3)\n" * (name == "pool.py"))
    before = hashes(folder)

    with takeback.open(path) as store, store.session("fix", agent="coder", workspace=folder) as s:
        s.user("Fix the flaky test")
        s.assistant("It needs more retries.")
        s.checkpoint("before the cleanup")
        s.user("Then clean up")
        shell(s, BREAK, folder)
        (folder / "yours.py").write_text("# your own afternoon of work\n")  # you, in your editor
        s.assistant("Cleaned up.")
        broken = hashes(folder)

        rewind = s.preview_rewind("before the cleanup")
        print(rewind)
        print("\nFrom its diff, the change to pool.py:")
        print("\n".join(line for line in rewind.diff().splitlines() if "retry" in line))
        print(f"\n{rewind.apply()!r}")

        now = hashes(folder)
        other = [name.split()[0] for name in now if now[name] != before.get(name)]
        print(f"still different: {other}; last message: {s.messages(limit=1)[0].text}")
        assert now.keys() == before.keys()
        assert other == ["yours.py"]

        s.undo()
        assert hashes(folder) == broken
        print("undone: everything is broken again, last message:", s.messages(limit=1)[0].text)

    with takeback.open(path) as store, store.session("fix", agent="coder", workspace=folder) as s:  # tomorrow
        s.redo()
        assert hashes(folder) == now
        print("redone after reopening, last message:", s.messages(limit=1)[0].text)
        print("also in the store:", s.file_at("pool.py", "before the cleanup"))
        assert not store.verify()
