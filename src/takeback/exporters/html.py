"""A session as one self-contained HTML file: no script, nothing fetched, readable on a phone and in dark mode.

All content is escaped and appears only between tags, or as an image whose type its own bytes prove. A
Content-Security-Policy forbids the rest: scripts, frames, foreign styles and addresses. Turns are read one after
another, so memory holds one turn.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ..client.points import Point
from ..client.session import Session
from ..context import walkthrough
from ..context.lines import one_line, visible
from ..context.read import spoken
from ..context.walkthrough import About, when
from ..errors import Error
from ..model import words
from ..model.branch import Branch
from ..model.entry import Entry
from ..model.message import Message
from ..model.subagents import Tree
from ..model.tools import ToolCall, ToolResult
from ..shell.secrets import mask

_LINE, _WORD, _SUMMARY = 400, 80, 100
_PICTURE = 2 << 20  # bytes: larger images are named, not shown
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_BOXES = {"completed": "done", "in_progress": "doing", "failed": "failed", "skipped": "skipped", "pending": "open"}
_FENCE = re.compile(r"^```[^\n`]{0,80}\n(.*?)(?:^```[ \t]*$|\Z)", re.M | re.S)
_OK, _FAILED = " <span class='good'>ok</span>", " <span class='bad'>failed</span>"
_CODE = re.compile(r"`([^`\n]{1,300})`")

STYLE = """
:root{color-scheme:light dark;--paper:#fbfaf8;--card:#fff;--ink:#1d1f23;--dim:#656b75;--line:#dedbd5;--user:#eef3fb;
--code:#f3f1ed;--good:#1a7f4b;--bad:#b3261e;--link:#1f5fbf}
@media(prefers-color-scheme:dark){:root{--paper:#15171a;--card:#1c1f23;--ink:#e3e5e8;--dim:#9aa1ab;--line:#30343a;
--user:#1d2733;--code:#23272c;--good:#5cc98f;--bad:#f2887f;--link:#86b5f5}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;
overflow-wrap:anywhere}
main,header,footer{max-width:50rem;margin:0 auto;padding:0 1rem}
header{padding-top:2rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .5rem}
h2{font-size:1.1rem;margin:2.2rem 0 .6rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
h3{font-size:.85rem;font-weight:600;color:var(--dim);margin:0;display:flex;gap:.6rem;align-items:baseline;flex-wrap:wrap}
a{color:var(--link);text-decoration:none}
a:hover,a:focus-visible{text-decoration:underline}
.facts{color:var(--dim);font-size:.9rem;margin:0 0 .3rem;padding:0;list-style:none;
display:flex;flex-wrap:wrap;gap:.1rem 1.1rem}
.turn{border-top:1px solid var(--line);padding-top:.8rem;margin-top:1.6rem}
h2+.turn{border-top:0;padding-top:0;margin-top:.6rem}
.turn>h3 .go{margin-left:auto;font-weight:400}
.said{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.6rem .9rem;margin:.7rem 0}
.said.user{background:var(--user)}
.who{font-size:.78rem;color:var(--dim);margin:0 0 .25rem;
display:flex;gap:.6rem;justify-content:space-between;flex-wrap:wrap}
.who b{color:var(--ink)}
.text{white-space:pre-wrap;margin:0}
pre{background:var(--code);border-radius:.4rem;padding:.6rem .75rem;margin:.5rem 0;overflow-x:auto;white-space:pre-wrap;
font:.82rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
background:var(--code);border-radius:.25rem;padding:.05em .3em}
pre code{background:none;padding:0;font:inherit}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:.5rem;background:var(--card)}
summary{cursor:pointer;padding:.45rem .75rem;font-size:.86rem;color:var(--dim)}
summary b{color:var(--ink)}
details>:not(summary){margin-left:.75rem;margin-right:.75rem}
.label{font-size:.75rem;color:var(--dim);margin-top:.4rem;margin-bottom:0}
details>pre{margin-top:.25rem;margin-bottom:.75rem}
.good{color:var(--good)}
.bad{color:var(--bad)}
ul.list,ol.list{margin:.3rem 0;padding-left:1.4rem}
ul.list li,ol.list li{margin:.15rem 0}
.mark{display:inline-block;min-width:6em;font-size:.75rem;color:var(--dim)}
.mark.done{color:var(--good)}
.mark.failed{color:var(--bad)}
.sub{list-style:none}
img{max-width:100%;height:auto;border-radius:.4rem;display:block;margin:.5rem 0}
nav{margin-top:1.2rem}
nav ol{columns:2;column-gap:2rem;padding-left:1.9rem;margin:.5rem 0;font-size:.9rem}
nav li{break-inside:avoid;margin:.15rem 0}
footer{color:var(--dim);font-size:.8rem;padding-top:2rem;padding-bottom:3rem}
@media(max-width:40rem){body{font-size:15px}header{padding-top:1.2rem}h1{font-size:1.35rem}nav ol{columns:1}
.said{padding:.55rem .7rem}}
@media print{details{break-inside:avoid}.go{display:none}}
""".strip()
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()  # the policy allows this style alone
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"


class _Style(NamedTuple):
    tools: str
    clean: Callable[[str], str]  # applied to every text first

    def line(self, text: str, limit: int = _LINE) -> str:
        """Escape a text and put it on one line."""
        return html.escape(one_line(self.clean(text), limit))

    def block(self, text: str) -> str:
        """Escape a multi-line text; control and bidirectional characters become visible."""
        return html.escape(visible(text))


def pieces(
    session: Session, *, at: Point | None = None, tools: str = "short", clean: Callable[[str], str] = mask
) -> Iterator[str]:
    """Yield the page piece by piece, up to a point if given; ``tools`` is full, short or none.

    Every text passes through ``clean`` first.
    """
    style = _Style(tools, clean)
    about, messages = session._told(at)
    prompts = _prompts(session, at, style)
    yield from _top(about, style)
    yield _contents(prompts)
    yield from _work(about, style)
    yield _branches(session.branches(), style)
    yield _below(session.tree(), style)
    yield "<h2 id='conversation'>Conversation</h2>\n"
    count = 0
    for turn, said in groupby(messages, lambda message: message.turn):
        count += 1
        yield from _turn(turn, [*said], max(prompts, default=0), style)
    if not count:
        yield "<p>No messages yet.</p>\n"
    yield "</main>\n<footer>Made by Takeback. This file is self-contained: it loads nothing from elsewhere.</footer>\n"
    yield "</body>\n</html>\n"


# ---------------------------------------------------------------------- before the conversation


def _top(about: About, style: _Style) -> Iterator[str]:
    title = style.line(about.title or "Untitled session")
    yield (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta name='referrer' content='no-referrer'>\n<meta name='robots' content='noindex'>\n"
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )
    model = style.line(about.model, _WORD) if about.model else None
    facts = {
        "Session": about.id,
        "Created": when(about.created),
        "Status": style.line(about.status, _WORD),
        "Model": model,
        "Workspace": style.line(about.workspace) if about.workspace else None,
        "": html.escape(str(about.stats)),
    }
    shown = (f"<li>{name} {value}</li>" if name else f"<li>{value}</li>" for name, value in facts.items() if value)
    yield f"<header>\n<h1>{title}</h1>\n<ul class='facts'>{''.join(shown)}</ul>\n</header>\n<main>\n"


def _work(about: About, style: _Style) -> Iterator[str]:
    tasks = [
        f"<li><span class='mark {_BOXES.get(task.status, 'open')}'>{html.escape(task.status.replace('_', ' '))}</span> "
        f"{style.line(task.description)}</li>"
        for task in about.tasks
    ]
    yield _list("Tasks", tasks, ordered=True)
    yield _text("Plan", about.plan, style)
    files = [
        f"<li><span class='mark'>{style.line(each.action, _WORD)}</span> {style.line(each.path)}</li>"
        for each in about.files
    ]
    yield _list("Files", files)
    points = [
        f"<li><a href='#turn-{point.stats.turns}'>turn {point.stats.turns}</a>, {when(point.created_at)}: "
        f"{style.line(point.name, _WORD)}{f' ({style.line(point.description)})' if point.description else ''}</li>"
        for point in about.checkpoints
    ]
    yield _list("Checkpoints", points)
    yield _list("Notes", [f"<li>{when(note.created_at)}: {style.line(note.text)}</li>" for note in about.notes])
    yield _text("Walkthrough, as the agent wrote it", about.written, style)


def _list(heading: str, items: Sequence[str], *, ordered: bool = False) -> str:
    kind = "ol" if ordered else "ul"
    shown = "\n".join(items)
    return f"<h2>{heading}</h2>\n<{kind} class='list'>\n{shown}\n</{kind}>\n" if items else ""


def _text(heading: str, text: str | None, style: _Style) -> str:
    return f"<h2>{heading}</h2>\n{_formatted(style.clean(text), style)}" if text and text.strip() else ""


def _branches(found: Sequence[Branch], style: _Style) -> str:
    if len(found) < 2:
        return ""
    return _list("Branches", [_branch(each, found, style) for each in found])


def _branch(branch: Branch, found: Sequence[Branch], style: _Style) -> str:
    name = style.line(branch.name, _WORD)
    shown = f"<b>{name}</b> (shown here)" if branch.is_head else name
    above = next((each.name for each in found if each.id == branch.parent), branch.parent)
    start = f", from entry {branch.fork_seq} of {style.line(above, _WORD)}" if above else ""
    return f"<li>{shown}: {words.count(branch.head_seq - branch.fork_seq, 'entry')} of its own{start}</li>"


def _below(tree: Tree, style: _Style) -> str:
    return _list("Sub-agents", [_sub(each, style) for each in tree.children])


def _sub(tree: Tree, style: _Style) -> str:
    name = style.line(tree.label or tree.title or tree.id)
    below = "".join(_sub(each, style) for each in tree.children)
    inner = f"<ul class='sub'>{below}</ul>" if below else ""
    return f"<li>{name}, {html.escape(tree.status)}: {html.escape(str(tree.stats))}{inner}</li>"


def _prompts(session: Session, at: Point | None, style: _Style) -> dict[int, str]:
    """Return the first words of each turn."""
    found = dict[int, str]()
    for message in session.iter_messages(tools=False, at=at):
        if message.turn and message.turn not in found:
            found[message.turn] = style.line(spoken(message), _WORD)
    return found


def _contents(prompts: dict[int, str]) -> str:
    if len(prompts) < 2:
        return ""
    items = "\n".join(
        f"<li value='{turn}'><a href='#turn-{turn}'>{text or '...'}</a></li>" for turn, text in prompts.items()
    )
    fold = " open" if len(prompts) <= 12 else ""
    return f"<nav><details{fold}><summary>{len(prompts):,} turns</summary>\n<ol>\n{items}\n</ol></details></nav>\n"


# ---------------------------------------------------------------------- the conversation


def _turn(turn: int, said: list[Message | Entry], last: int, style: _Style) -> Iterator[str]:
    """Yield a turn; a tool's result is shown with its call if both are in this turn."""
    results = {each.call_id: each for one in said if isinstance(one, Message) for each in one.tool_results}
    called = {call.id for one in said for call in _calls(one)}
    yield f"<section class='turn' id='turn-{turn}'>\n"
    if turn:
        back = f"<a href='#turn-{turn - 1}'>previous</a> " if turn > 1 else ""
        on = f"<a href='#turn-{turn + 1}'>next</a>" if turn < last else ""
        yield f"<h3><a href='#turn-{turn}'>Turn {turn}</a><span class='go'>{back}{on}</span></h3>\n"
    for one in said:
        if isinstance(one, Message):
            yield from _message(one, style)
        if style.tools != "none":
            yield from (_call(call, results.get(call.id), style) for call in _calls(one))
            yield from (_orphan(each, one, style) for each in _results(one) if each.call_id not in called)
    yield "</section>\n"


def _calls(one: Message | Entry) -> Sequence[ToolCall]:
    if isinstance(one, Message):
        return one.tool_calls
    call = walkthrough.started(one)
    return () if call is None else (call,)


def _results(one: Message | Entry) -> Sequence[ToolResult]:
    return one.tool_results if isinstance(one, Message) else ()


def _message(message: Message, style: _Style) -> Iterator[str]:
    text, attached = spoken(message), [*_attached(message, style)]
    if not text.strip() and not attached and message.status == "complete":
        return
    kind = "said user" if message.role == "user" else "said"
    state = "" if message.status == "complete" else f" ({style.line(message.status, _WORD)})"
    model = f" {style.line(message.model, _WORD)}" if message.model else ""
    yield f"<article class='{kind}' id='e{message.seq}'>\n"
    yield f"<p class='who'><span><b>{style.line(message.role, _WORD)}</b>{model}{state}</span>"
    yield f"<time>{when(message.created_at)}</time></p>\n"
    yield _formatted(style.clean(text), style) if text.strip() else ""
    yield from attached
    yield "</article>\n"


def _orphan(result: ToolResult, message: Message | Entry, style: _Style) -> str:
    """Format a tool's result whose call is not in this turn."""
    name = message.tool_name if isinstance(message, Message) else None
    return _details(result.name or name or "a tool", "", _result(result, style), result, style)


def _call(call: ToolCall, result: ToolResult | None, style: _Style) -> str:
    arguments = style.clean(walkthrough.as_text(call.arguments))
    inner = f"<p class='label'>input</p>{_pre(arguments, style)}"
    inner += _result(result, style) if result is not None else "<p class='label'>no result</p>"
    return _details(call.name, arguments, inner, result, style)


def _details(name: str, arguments: str, inner: str, result: ToolResult | None, style: _Style) -> str:
    state = "" if result is None else _OK if result.success else _FAILED
    shown = html.escape(one_line(arguments, _SUMMARY))
    return f"<details><summary><b>{style.line(name, _WORD)}</b>{state} {shown}</summary>\n{inner}</details>\n"


def _result(result: ToolResult, style: _Style) -> str:
    return f"<p class='label'>output</p>{_pre(style.clean(walkthrough.as_text(result.content)), style)}"


def _pre(text: str, style: _Style) -> str:
    return f"<pre>{style.block(walkthrough.cut(text, style.tools))}</pre>"


def _formatted(text: str, style: _Style) -> str:
    """Format a message: code blocks and inline code as code, everything else as plain text."""
    parts, at = list[str](), 0
    for fence in _FENCE.finditer(text):
        parts.append(_plain(text[at : fence.start()], style))
        parts.append(f"<pre><code>{style.block(fence[1].removesuffix(chr(10)))}</code></pre>")
        at = fence.end()
    parts.append(_plain(text[at:], style))
    return "\n".join(part for part in parts if part) + "\n"


def _plain(text: str, style: _Style) -> str:
    stripped = text.strip("\n")
    if not stripped.strip():
        return ""
    parts, at = list[str](), 0
    for code in _CODE.finditer(stripped):
        parts += [style.block(stripped[at : code.start()]), f"<code>{style.block(code[1])}</code>"]
        at = code.end()
    return f"<div class='text'>{''.join(parts)}{style.block(stripped[at:])}</div>"


def _attached(message: Message, style: _Style) -> Iterable[str]:
    for each in message.attachments:
        name = style.line(each.name or each.id or "file", _LINE)
        size = f", {each.size:,} bytes" if each.size is not None else ""
        yield f"<p class='label'>attached: {name}{size}</p>\n"
        if each.type == "image" and (each.size or _PICTURE + 1) <= _PICTURE:
            yield _picture(each, name)


def _picture(attachment: Any, name: str) -> str:
    """Embed an image whose type its first bytes prove; anything else is only named."""
    try:
        data = attachment.read()
    except Error:
        return ""
    kind = next((kind for magic, kind in _PICTURES.items() if data.startswith(magic)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    return "" if kind is None else f"<img alt='{name}' src='data:{kind};base64,{base64.b64encode(data).decode()}'>\n"
