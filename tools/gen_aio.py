"""Generate src/takeback/aio.py, the async API, from the blocking classes. ``--check`` only compares.

Every public method and attribute of a handle gets a twin of the same name, shaped by its annotations: handles
become their Async twin, even inside pages, lists and optionals; iterators become async ones; a context manager
can be awaited or entered. An annotation that is not understood stops the build.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_overloads

from takeback.client import agent, documents, rewind, session, state, store, streams, tools, workspace
from takeback.model import attachment

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "takeback" / "aio.py"

HANDLES: dict[str, type] = {
    "Store": store.Store,
    "Agent": agent.Agent,
    "AgentState": state.AgentState,
    "Session": session.Session,
    "SessionState": state.SessionState,
    "ToolRun": tools.ToolRun,
    "Stream": streams.Stream,
    "Rewind": rewind.Rewind,
    "Workspace": workspace.Workspace,
    "Attachment": attachment.Attachment,
    "Documents": documents.Documents,
}
ENTERED = {"Session", "Stream"}  # results that ``async with`` can enter without an ``await`` before
NO_IO = {
    "tool",
    "retry",
    "scoped",
    "workspace",
    "docs",
    "to_dict",
    "runtime",
    "due",
}  # methods that only use what the handle holds
WAITING = {"session", "receive", "wait", "ask_approval"}  # methods that may wait for others
LIVE = {"follow"}  # iterators that wait for events: each has a private form that can be stopped
# Names that annotations may use, and the modules that the generated module imports them from.
NAMES: dict[str, str] = {
    "Any": "typing",
    "BinaryIO": "typing",
    "IO": "typing",
    "Literal": "typing",
    "Unpack": "typing",
    "Callable": "collections.abc",
    "Iterable": "collections.abc",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "PathLike": "os",
    "datetime": "datetime",
    "timedelta": "datetime",
    "TracebackType": "types",
    "Attachable": ".client.attachments",
    "Point": ".client.points",
    "NewSession": ".client.store_sessions",
    "Resolved": ".client.refs",
    "Turn": ".client.reading",
    "Context": ".context.value",
    "Count": ".context.tokens",
    "Approval": ".model.approval",
    "Branch": ".model.branch",
    "Capture": ".model.capture",
    "Checkpoint": ".model.checkpoint",
    "Comparison": ".model.comparison",
    "Copying": ".model.copied",
    "Exported": ".model.exchange",
    "Loaded": ".model.exchange",
    "Document": ".model.document",
    "Namespace": ".model.document",
    "Diff": ".model.files",
    "FileChange": ".model.files",
    "FileDiff": ".model.files",
    "FileState": ".model.files",
    "Pruned": ".model.purge",
    "Entry": ".model.entry",
    "Custom": ".model.items",
    "Written": ".model.items",
    "Change": ".model.feed",
    "Message": ".model.message",
    "Operation": ".model.operation",
    "Page": ".model.page",
    "Purged": ".model.purge",
    "Redaction": ".model.redaction",
    "Repaired": ".model.report",
    "Report": ".model.report",
    "Scan": ".model.scan",
    "Hits": ".model.search",
    "Head": ".model.session",
    "Stats": ".model.session",
    "StoreStats": ".model.session",
    "Spent": ".model.spending",
    "tzinfo": "datetime",
    "Sent": ".model.subagents",
    "Spawned": ".model.subagents",
    "Tree": ".model.subagents",
    "Holder": ".presence",
    "ToolCall": ".model.tools",
    "ToolResult": ".model.tools",
    "Compaction": ".model.work",
    "FileTouched": ".model.work",
    "Note": ".model.work",
    "Task": ".model.work",
    "Capabilities": ".storage.base",
    "Clock": ".clock",
}
BUILTINS = {"None", "str", "int", "bool", "float", "bytes", "dict", "list", "tuple", "object", "type", "BaseException"}

HEAD = '''"""The awaitable API: the same names as the blocking one, with ``await``, ``async with`` and ``async for``.

Generated from the blocking classes by tools/gen_aio.py; do not edit. Attributes are what a handle holds; every
method runs in a thread of the portal and finishes even when the task that awaits it is cancelled.
"""
'''

# A store may be opened by whoever uses it first, so its blocking twin is not there from the beginning.
STORE = '''
    def __init__(self, portal: Portal, opening: Callable[[], Store], store: Store | None = None) -> None:
        self._portal, self._opening, self._store = portal, opening, store
        if store is not None:
            store._attachment.wrap = partial(AsyncAttachment, portal)

    @property
    def _sync(self) -> Store:
        return self._store or self._open()

    def _open(self) -> Store:
        with self._portal.opening():
            if self._store is None:
                store = self._opening()
                store._attachment.wrap = partial(AsyncAttachment, self._portal)
                self._store = store
            return self._store

    def _shut(self) -> None:
        with self._portal.opening():
            if self._store is not None:
                self._store.close()

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncStore:
        if self._store is None:
            try:
                await self._portal.run(self._open)
            except BaseException:  # cancelled, or it did not open
                self._portal.rest()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """CLOSE"""
        if self._store is None or self._store._owner:
            await self._portal.close(self._shut)

    def __repr__(self) -> str:
        return "<AsyncStore, not open yet>" if self._store is None else f"<Async{repr(self._store)[1:]}"
'''

OPEN = '''
def aopen(
    url: str | PathLike[str] | None = None,
    *,
    scope: str | None = None,
    durability: str = "full",
    read_only: bool = False,
    lock_timeout: float = LOCK_TIMEOUT,
    clock: Clock | None = None,
) -> AsyncStore:
    """Open a store for tasks of asyncio or trio: ``async with takeback.aopen(url) as store``, or ``await`` it.

    Takes what ``takeback.open`` takes. Without either, as in a constructor, the first call that is awaited opens the
    store; close it with ``await store.close()``.
    """
    how = partial(open_store, durability=durability, read_only=read_only, lock_timeout=lock_timeout)
    return AsyncStore(Portal(), lambda: how(url, scope=scope, clock=clock))
'''


class Unknown(Exception):
    """An annotation without an async form."""


# ---------------------------------------------------------------------- annotations


def twin(annotation: str, seen: set[str]) -> str:
    """Return the async form of an annotation, and add the names it uses to ``seen``."""
    tree = ast.parse(annotation, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in HANDLES:
                node.id = f"Async{node.id}"
            elif node.id in NAMES:
                seen.add(node.id)
            elif node.id not in BUILTINS:
                raise Unknown(f"{node.id} in {annotation!r}")
    return ast.unparse(tree)


def inner(annotation: str, outer: str) -> str | None:
    """Return X of ``outer[X]``, or None if the annotation is something else."""
    found = re.fullmatch(rf"{outer}\[(.*)\]", annotation)
    return found.group(1) if found else None


def mentions_handle(annotation: str) -> bool:
    """Whether a value of this annotation may contain a handle."""
    return any(re.search(rf"\b{name}\b", annotation) for name in HANDLES)


def wrap(annotation: str, value: str) -> str:
    """Return the code that turns a blocking result into an async one."""
    if annotation == "Store":  # only ``scoped`` returns one, of a store that is open
        return f"(lambda made: AsyncStore(self._portal, lambda: made, made))({value})"
    if annotation in HANDLES:
        return f"Async{annotation}(self._portal, {value})"
    if not mentions_handle(annotation):
        return value
    if page := inner(annotation, "Page"):
        return f"(lambda page: Page([{wrap(page, 'each')} for each in page], page.cursor, page.damaged))({value})"
    if pair := inner(annotation, "tuple"):  # of a handle and something that is not one
        first, _, other = pair.partition(", ")
        return f"({wrap(first, f'{value}[0]')}, {wrap(other, f'{value}[1]')})"
    if listed := inner(annotation, "list"):
        return f"[{wrap(listed, 'each')} for each in {value}]"
    if inner(annotation, "Resolved"):
        return f"(lambda found: Resolved(AsyncSession(self._portal, found.session), *found[1:]))({value})"
    if inner(annotation, "Spawned"):
        return f"(lambda found: Spawned(*found[:-1], AsyncSession(self._portal, found.session)))({value})"
    parts = [part.strip() for part in annotation.split("|")]
    handles = [part for part in parts if part in HANDLES]
    if len(handles) != 1 or any(mentions_handle(part) for part in parts if part not in HANDLES):
        raise Unknown(annotation)
    made = wrap(handles[0], "found")
    return f"(lambda found: {made} if isinstance(found, {handles[0]}) else found)({value})"


# ---------------------------------------------------------------------- signatures


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature in which the handle type of the store's read-only base class is ``Session``."""
    found = inspect.signature(function)

    def plain(annotation: Any) -> Any:
        return re.sub(r"\b(S_co|Reading)\b", "Session", annotation) if isinstance(annotation, str) else annotation

    changed = [each.replace(annotation=plain(each.annotation)) for each in found.parameters.values()]
    return found.replace(parameters=changed, return_annotation=plain(found.return_annotation))


def signature(function: Callable[..., Any], returns: str, seen: set[str], prefix: str) -> str:
    """Return the ``def`` line of a twin."""
    parts, star = ["self"], False
    for parameter in list(signature_of(function).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        parts.append(f"{mark}{parameter.name}: {twin(parameter.annotation, seen)}{default}")
    return f"{prefix} {function.__name__}({', '.join(parts)}) -> {returns}:"


def arguments(function: Callable[..., Any]) -> str:
    """Return the arguments for the call of the blocking method, with handles unwrapped."""
    parts = []
    for parameter in list(signature_of(function).parameters.values())[1:]:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{{key: unwrap(value) for key, value in {name}.items()}}")  # type: ignore
            continue
        value = f"unwrap({name})" if mentions_handle(parameter.annotation) else name
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*map(unwrap, {name})" if mentions_handle(parameter.annotation) else f"*{name}")
        else:
            parts.append(f"{name}={value}" if parameter.kind is parameter.KEYWORD_ONLY else value)
    return ", ".join(parts)


# ---------------------------------------------------------------------- members


def method(owner: str, name: str, function: Callable[..., Any], seen: set[str]) -> list[str]:
    """Return the lines of a method's twin."""
    returns = signature_of(function).return_annotation
    doc, given = _doc(function), arguments(function)
    call = f"self._sync.{name}({given})"
    if planned := plan(function):
        body = f"return await self._portal.write(self._sync._store._backend, {planned})"
        return [signature(function, twin(returns, seen), seen, "async def"), doc, body]
    if name in NO_IO:
        return [signature(function, twin(returns, seen), seen, "def"), doc, f"return {wrap(returns, call)}"]
    if returns == "IO[bytes]":
        return [
            signature(function, "AsyncReader", seen, "def"),
            doc,
            f"return AsyncReader(self._portal, self._sync.{name})",
        ]
    if item := inner(returns, "Iterator"):
        stream = f"self._portal.iterate(lambda: {call})"
        if name in LIVE:
            stream = f"self._portal.follow(lambda stopped: self._sync._{name}({given}, stopped))"
        if mentions_handle(item):
            stream = f"wrapped({stream}, lambda each: {wrap(item, 'each')})"
        return [signature(function, f"AsyncIterator[{twin(item, seen)}]", seen, "def"), doc, f"return {stream}"]
    if returns == owner and name == "refresh":
        return [
            signature(function, f"Async{owner}", seen, "async def"),
            doc,
            f"await self._portal.run(lambda: {call})",
            "return self",
        ]
    how = "wait" if name in WAITING else "run"
    result = wrap(returns, f"await self._portal.{how}(lambda: {call})")
    if returns == "Stream":
        result = wrap(returns, f"await self._portal.enter(lambda: {call}, lambda made: made.cancel())")
    if returns in ENTERED:
        lines = [signature(function, f"Opening[Async{returns}]", seen, "def"), doc]
        lines += [f"async def opening() -> Async{returns}:", f"    return {result}", "return Opening(opening)"]
        return lines
    return [signature(function, twin(returns, seen), seen, "async def"), doc, f"return {result}"]


def plan(function: Callable[..., Any]) -> str | None:
    """Return X of a method that is only ``return self._run(X)``, for the async handle; None for other methods.

    The portal runs what was planned together with the writes of other tasks.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._run"]
    if not called:
        return None
    assert isinstance(tree, ast.FunctionDef)
    last = tree.body[-1]
    if len(tree.body) != 2 or not isinstance(last, ast.Return) or last.value is not called[0]:
        raise Unknown(f"{function.__qualname__} uses _run, and does more than that")
    return re.sub(r"\bself\b", "self._sync", ast.unparse(called[0].args[0]))


def _doc(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    first, _, rest = text.partition("\n")
    rest = "\n".join(f"        {line}".rstrip() for line in rest.splitlines())
    return f'"""{first}{chr(10) + rest + chr(10) + "        " if rest.strip() else ""}"""'


def attribute(name: str, annotation: str, doc: str, seen: set[str]) -> list[str]:
    """Return the lines of an attribute's twin, which reads the blocking handle."""
    head = f"def {name}(self) -> {twin(annotation, seen)}:"
    return ["@property", head, f'"""{doc}"""', f"return {wrap(annotation, f'self._sync.{name}')}"]


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class and its bases, each once, in source order."""
    seen = set[str]()
    for base in reversed(cls.__mro__[:-1]):
        for name in vars(base):
            if not name.startswith("_") and name not in seen and hasattr(cls, name):
                seen.add(name)
                yield name, inspect.getattr_static(cls, name)


def annotated(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the public attributes that a class declares by annotation."""
    for base in reversed(cls.__mro__[:-1]):
        for name, annotation in vars(base).get("__annotations__", {}).items():
            if not name.startswith("_"):
                yield name, annotation


def write_class(name: str, cls: type, seen: set[str]) -> str:
    """Return the source of a class's twin."""
    parts = [[f"def __init__(self, portal: Portal, sync: {name}) -> None:", "self._portal, self._sync = portal, sync"]]
    if name == "Store":
        parts = []
    declared = dict(annotated(cls))
    parts += [attribute(each, how, f"As the blocking ``{name}`` holds it.", seen) for each, how in declared.items()]
    for member, value in members(cls):
        if member in declared or isinstance(value, classmethod):
            continue
        if isinstance(value, property):
            returns = signature_of(value.fget).return_annotation  # type: ignore[arg-type]
            parts.append(attribute(member, returns, inspect.getdoc(value) or "", seen))
        elif name == "Store" and member == "close":
            continue
        else:
            for each in get_overloads(value) if inspect.isfunction(value) else ():
                returns = twin(signature_of(each).return_annotation, seen)
                parts.append(["@overload", signature(each, returns, seen, "async def"), "..."])
            parts.append(method(name, member, value, seen))
    parts += _special(name, cls)
    body = "\n\n".join(_indented(lines) for lines in parts)
    if name == "Store":
        body = STORE.replace('"""CLOSE"""', _doc(store.Store.close)).lstrip("\n") + "\n" + body
    return f'class Async{name}(Bound):\n    """{inspect.getdoc(cls)}"""\n\n{body}\n'


def _special(name: str, cls: type) -> list[list[str]]:
    if name == "Store":
        return []
    found = [["def __repr__(self) -> str:", 'return f"<Async{repr(self._sync)[1:]}"']]
    if hasattr(cls, "_repr_html_"):
        found.append(["def _repr_html_(self) -> str:", "return self._sync._repr_html_()"])
    if hasattr(cls, "__str__") and cls.__str__ is not object.__str__:
        found.append(["def __str__(self) -> str:", "return str(self._sync)"])
    if not hasattr(cls, "__enter__"):
        return found
    enter = [f"async def __aenter__(self) -> Async{name}:"]
    leave = "async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, "
    leave += "trace: TracebackType | None) -> None:"
    left = "CancelledError, CancelledError(), None"  # how a task that is cancelled while entering leaves again
    if name == "Session":  # waiting for its holder takes a thread of its own, as in ``session``
        enter += ["if self._sync._must_wait:", "    await self._portal.wait(self._sync._take_ahead)"]
    enter += [f"await self._portal.enter(self._sync.__enter__, lambda made: made.__exit__({left}))", "return self"]
    return [*found, enter, [leave, "await self._portal.finish(lambda: self._sync.__exit__(kind, error, trace))"]]


def _indented(lines: list[str]) -> str:
    head = next(at for at, line in enumerate(lines) if line.rstrip().endswith(":") and "def " in line)
    first = [f"    {line}" for line in lines[: head + 1]]
    return "\n".join([*first, *(f"        {line}" for line in lines[head + 1 :])])


# ---------------------------------------------------------------------- the module


def generate() -> str:
    """Return the source of the whole module."""
    seen = {"TracebackType", "PathLike", "Clock", "Page", "Resolved"}
    classes = [write_class(name, cls, seen) for name, cls in HANDLES.items()]
    text = HEAD + "\nfrom __future__ import annotations\n\n" + imports(seen) + "\n\n" + "\n\n".join([*classes, OPEN])
    return formatted(text)


def imports(seen: set[str]) -> str:
    """Return the imports for the names that were used."""
    lines = [f"from {NAMES[name]} import {name}" for name in sorted(seen)]
    lines += ["from collections.abc import AsyncIterator, Callable, Generator", "from typing import overload"]
    lines += ["from asyncio import CancelledError"]
    lines += [f"from .{cls.__module__.removeprefix('takeback.')} import {name}" for name, cls in HANDLES.items()]
    lines += ["from functools import partial", "from .client.open import LOCK_TIMEOUT, open_store"]
    lines += ["from .model import Bound"]
    lines += ["from .portal import AsyncReader, Opening, Portal, unwrap, wrapped"]
    return "\n".join(lines)


def formatted(text: str) -> str:
    """Sort and format with ruff, so that the file reads like the others."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    name = ["--stdin-filename", str(TARGET)]
    sort = [*ruff, "check", "--fix-only", "--quiet", "--select", "I,F401,UP,SIM,RUF100", *name, "-"]
    text = subprocess.run(sort, input=text, text=True, capture_output=True, check=True).stdout
    return subprocess.run([*ruff, "format", *name, "-"], input=text, text=True, capture_output=True, check=True).stdout


def main() -> int:
    """Write the module, or compare it."""
    new = generate()
    if "--check" in sys.argv:
        stale = not TARGET.exists() or TARGET.read_text("utf-8") != new
        if stale:
            print("src/takeback/aio.py is out of date: run python tools/gen_aio.py", file=sys.stderr)
        return int(stale)
    TARGET.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
