"""Whatever a shell does to files is caught, tied to its call, and taken back byte for byte (R16)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from _folders import AUTHOR, look, run

import takeback

SCRIPTS = {
    "sed -i": "sed -i 's/alpha/ALPHA/' notes.txt src/*.py",
    "sed -i keeps a backup": "sed -i.bak 's/a/b/g' notes.txt",
    "mv renames": "mv notes.txt renamed.txt",
    "mv over an existing file": "mv notes.txt src/main.py",
    "mv a directory": "mv src lib",
    "mv across directories": "mkdir -p x/y && mv src/main.py x/y/main.py && mv data/blob.bin x/",
    "rm one": "rm notes.txt",
    "rm -r": "rm -r src data",
    "rm everything": "find . -mindepth 1 -delete",
    "find -delete by name": "find . -name '*.py' -delete",
    "tar extracts over files": "mkdir t && echo o > t/notes.txt && tar -C t -cf a.tar . && rm -r t && tar -xf a.tar",
    "tar packs and removes": "tar -cf all.tar src data --remove-files",
    "python writes": "python3 -c \"import os; open('notes.txt','ab').write(bytes(range(256))); os.rename('src','s2')\"",
    "python writes at a place": "python3 -c \"f=open('data/blob.bin','r+b'); f.seek(100); f.write(b'XX')\"",
    "chmod": "chmod 0600 notes.txt && chmod +x src/main.py && chmod 0700 src && chmod 0444 data/blob.bin",
    "chmod -R": "chmod -R go-rwx src data",
    "ln -s": "ln -s notes.txt a-link && ln -s /etc b-link && ln -s nowhere c-link",
    "a link becomes another": "ln -sfn data current",
    "a link becomes a file": "rm current && echo plain > current",
    "a file becomes a link": "rm notes.txt && ln -s src/main.py notes.txt",
    "a directory becomes a link": "mv src real && ln -s real src",
    "a directory becomes a file": "rm -r src && echo f > src",
    "a file becomes a directory": "rm notes.txt && mkdir notes.txt && echo in > notes.txt/in",
    "ln makes a hard link": "ln notes.txt hard && echo more >> hard",
    "cp -a": "cp -a src copy && cp notes.txt data/blob.bin",
    "dd": "dd if=/dev/zero of=data/blob.bin bs=1 seek=10 count=20 conv=notrunc 2>/dev/null",
    "dd makes a hole": "dd if=/dev/zero of=sparse bs=1 seek=100000 count=1 2>/dev/null",
    "truncate": "truncate -s 0 notes.txt && truncate -s 5000 src/main.py",
    "a heredoc": "cat > src/main.py <<'EOF'\nprint('patched')\nEOF\ncat >> notes.txt <<EOF\nmore\nEOF",
    "a patch": "cp notes.txt notes.orig && printf '1c\\nbeta\\n.\\n' > p && sed -i '1c beta' notes.txt && rm p",
    "mkdir and rmdir": "mkdir -p new/deep/er && rmdir empty",
    "touch": "touch brand-new && touch notes.txt && touch -d '2001-01-01' src/main.py",
    "the same size and time": "cp -p notes.txt o && tr a b < o > notes.txt && touch -r o notes.txt && rm o",
    "names that are no text": "printf x > $'\\xff\\xfe' && printf y > $'a\\nb' && printf z > ' -rf *' && mv ünï.txt u",
    "install and rename over": "printf 'n' > .tmp && chmod 640 .tmp && mv .tmp notes.txt",
    "swaps two files": "mv notes.txt t && mv src/main.py notes.txt && mv t src/main.py",
    "swaps two directories": "mv src t && mv data src && mv t data",
    "changes case": "mv notes.txt NOTES.TXT",
    "deep": "mkdir -p $(printf 'n/%.0s' {1..40}) && echo x > $(printf 'n/%.0s' {1..40})f",
    "many": "for i in $(seq 200); do echo $i > many-$i; done; rm -r src",
    "locks a directory": "echo x > src/new && chmod 0500 src && chmod 0 notes.txt",
    "git init and commit": f"git {AUTHOR} init -q && git add -A && git {AUTHOR} commit -qm x && git rm -q notes.txt",
    "git stash": f"git {AUTHOR} init -q && git add -A && git {AUTHOR} commit -qm x && echo y >> notes.txt"
    f" && rm src/main.py && git {AUTHOR} stash -q",
    "git checkout": f"git {AUTHOR} init -q && git add -A && git {AUTHOR} commit -qm x && git checkout -q -b other"
    f" && git rm -rq src && echo z > notes.txt && git {AUTHOR} commit -qam y",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with one of everything."""
    root = tmp_path / "work"
    for folder in ("src", "data", "empty", "private"):
        (root / folder).mkdir(parents=True)
    (root / "notes.txt").write_text("alpha\nbeta\n")
    (root / "src" / "main.py").write_text("print('alpha')\n")
    (root / "src" / "run.sh").write_text("#!/bin/sh\n")
    (root / "src" / "run.sh").chmod(0o755)
    (root / "data" / "blob.bin").write_bytes(bytes(range(256)) * 40)
    (root / "data" / "none").write_bytes(b"")
    (root / "private" / "key").write_text("k")
    (root / "private" / "key").chmod(0o600)
    (root / "private").chmod(0o700)
    (root / "ünï.txt").write_text("ü")
    (root / "current").symlink_to("src")
    (root / "dangling").symlink_to("../nowhere")
    return root


@pytest.mark.promise("R16")
@pytest.mark.feature("F1", "A4")
@pytest.mark.parametrize("script", [*SCRIPTS.values()], ids=[*SCRIPTS])
def test_what_a_script_does_is_taken_back(
    tmp_path: Path, work: Path, script: str, tally: Callable[[str, int], int]
) -> None:
    if "git" in script and shutil.which("git") is None:
        pytest.skip("git is not installed")
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("go")
        before = look(work)
        call = run(session, work, script)
        after = look(work, but=(b".git",))
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        files = {path for path in changed if "dir" not in (before.get(path, ("",))[0], after.get(path, ("",))[0])}
        seen = {os.fsencode(each.path): each.call_id for each in session.files()}
        assert {path: seen.get(path) for path in files} == dict.fromkeys(files, call), "each path is tied to the call"
        preview = session.preview_rewind(1)
        assert (preview.kept, preview.others) == ((), ())
        assert {os.fsencode(each.path) for each in preview.files} == changed, "the preview names what differs"
        preview.apply()
        assert look(work, but=(b".git",)) == before
        session.undo()
        assert look(work, but=(b".git",)) == after
        session.redo()
        assert look(work, but=(b".git",)) == before
    tally("R16 scripts", 1)
