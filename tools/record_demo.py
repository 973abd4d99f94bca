"""Record ``takeback demo`` in a terminal as docs/demo.svg, or compare the recording with what the demo prints now.

    python tools/record_demo.py             # writes docs/demo.svg
    python tools/record_demo.py --check     # fails if the text differs; ids, times and directories may

The picture is plain SVG: no script, no embedded font, and its own dark background, so it is readable on dark and
light pages. With CSS animation it plays at a reader's pace, not the machine's; without, it shows the rewind.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "demo.svg"
COLUMNS, ROWS = 100, 34
LINE, CHARACTER, EDGE = 18, 7.83, 14
TYPED, READ, ENDING = 0.7, 0.2, 4.0  # seconds: for a command, for each line of output, at the end

_COLOR = re.compile(r"\x1b\[([0-9;]*)m")
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}
# What differs in every run.
_VARIES = (
    (re.compile(r"/\S*takeback-demo-\w+"), "DIRECTORY"),
    (re.compile(r"\b1[0-9a-hjkmnp-tv-z]{6,24}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \([^)]*\)"), "TIME"),
    (re.compile(r", (?:now|\d+[smh] ago)$"), ", AGO"),
    (re.compile(r"^(ID\S*  )(?:now|\d+[smh] *)  "), r"\1AGE  "),
    (re.compile(r"\b[0-9.]+ s\b"), "SECONDS"),
)
_SHELLS = re.compile(r"(.*\s)?Killed\b(?! with)")  # some shells report a killed job, each in its own words

STYLE = """
text{font:13px ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',Consolas,monospace;fill:#d0d7de;white-space:pre}
.b{font-weight:bold;fill:#fff}.d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}.c{fill:#79c0ff}
"""


class Step(NamedTuple):
    """How many lines are shown, and for how long."""

    lines: int
    seconds: float


def record(temporary: str = "/tmp") -> list[str]:
    """Run the demo in a terminal and return the lines it shows, with colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    hidden = ("NO_COLOR", "COLUMNS", "LINES")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    given = {**env, "TERM": "xterm", "TMPDIR": temporary, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "takeback", "demo"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=given) as demo:
        os.close(theirs)
        text = b"".join(_chunks(ours)).decode("utf-8")
        os.close(ours)
    if demo.returncode:
        raise SystemExit(f"the demo ended with {demo.returncode}:\n{text}")
    return [line.expandtabs() for line in text.replace("\r\n", "\n").splitlines()]


def _chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            found = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return
        if not found:
            return
        yield found


# ---------------------------------------------------------------------- the picture


def drawn(lines: Sequence[str]) -> str:
    """Draw lines as a scrolling terminal."""
    width, height = round(COLUMNS * CHARACTER + 2 * EDGE), ROWS * LINE + 2 * EDGE
    texts = "\n".join(f'<text y="{LINE * (at + 1) - 5}">{_spans(line)}</text>' for at, line in enumerate(lines))
    still = next(at for at, line in enumerate(lines) if "yours, kept" in line) + 8
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<title>takeback demo, recorded in a terminal</title>
<style>{STYLE}{_scrolling(steps(lines))}</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117" stroke="#30363d"/>
<svg x="{EDGE}" y="{EDGE}" width="{width - 2 * EDGE}" height="{ROWS * LINE}">
<g class="all" transform="translate(0,{_place(still)})" xml:space="preserve">
{texts}
</g></svg></svg>
"""


def _spans(line: str) -> str:
    parts, style = _COLOR.split(line), ""
    written = list[str]()
    for at, part in enumerate(parts):
        if at % 2:
            style = _CLASSES.get(part, "")
        elif part:
            written.append(f'<tspan class="{style}">{escape(part)}</tspan>' if style else escape(part))
    return "".join(written)


def _place(lines: int) -> int:
    """Return how far to move the text so that its first ``lines`` lines end at the bottom edge."""
    return (ROWS - lines) * LINE


def steps(lines: Sequence[str]) -> list[Step]:
    """Split a recording into what is shown at once: a command, its output, a proof, an act."""
    plain = [_COLOR.sub("", line) for line in lines]
    begins = [at for at, line in enumerate(plain) if at == 0 or line.startswith(("$ ", "✓")) or not line]
    ends = sorted({*begins, *(at + 1 for at in begins if plain[at].startswith("$ ")), len(lines)})
    return [Step(end, max(TYPED, READ * (end - begin))) for begin, end in pairwise(ends)]


def _scrolling(shown: Sequence[Step]) -> str:
    whole, now, frames = sum(each.seconds for each in shown) + ENDING, 0.0, list[str]()
    for each in shown:
        frames.append(f"{100 * now / whole:.2f}%{{transform:translate(0,{_place(each.lines)}px)}}")
        now += each.seconds
    frames.append(f"to{{transform:translate(0,{_place(shown[-1].lines)}px)}}")
    moving = f".all{{animation:scroll {whole:.0f}s step-end infinite}}"
    return f"@keyframes scroll{{{''.join(frames)}}}\n@media (prefers-reduced-motion:no-preference){{{moving}}}\n"


# ---------------------------------------------------------------------- comparing


def recorded() -> list[str]:
    """Return the lines of the picture, without colours."""
    root = ElementTree.fromstring(PICTURE.read_text("utf-8"))
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


def comparable(lines: Sequence[str]) -> list[str]:
    """Return lines without colours and without what differs in every run."""
    found = list[str]()
    for text in (_COLOR.sub("", line) for line in lines):
        if _SHELLS.match(text):
            continue
        for pattern, name in _VARIES:
            text = pattern.sub(name, text)
        found.append(text.rstrip())
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the picture, or compare it."""
    lines = record()
    if arguments == ["--check"]:
        same = comparable(lines) == comparable(recorded())
        print("docs/demo.svg is current" if same else "docs/demo.svg is stale: run python tools/record_demo.py")
        return int(not same)
    wide = [line for line in lines if len(_COLOR.sub("", line)) > COLUMNS]
    if wide:
        raise SystemExit(f"these lines are wider than {COLUMNS} columns: {wide}")
    PICTURE.write_text(drawn(lines), "utf-8")
    print(f"{PICTURE.name}: {len(lines)} lines, {PICTURE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
