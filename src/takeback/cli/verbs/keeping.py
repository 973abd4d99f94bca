"""Housekeeping: titles, tags, pins, the archive, the trash. Everything except ``purge`` can be undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ...client.session import Session
from ...model import words
from ...model.operation import Operation
from ...shell import documents
from ...shell.failures import NOT_FOUND, Stop
from ..consent import agreed, tell
from ..frame import Frame, option, ref_argument, verb
from ..output import line

if TYPE_CHECKING:
    from ...model.purge import Pruned
    from ...model.subagents import Tree

_DELETING = """\b
Which one to use:
  archive  hides a session from lists; unarchive shows it again
  rm       moves it to the trash; restore or undo brings it back
  purge    erases it permanently; nothing brings it back
  prune    erases content that belongs to no session any more
"""
_REFS = ref_argument("refs", nargs=-1, required=True, metavar="REF...")


def _each(
    frame: Frame,
    refs: tuple[str, ...],
    what: str,
    change: Callable[[Session], Operation | None],
    along: Callable[[Session], str] = lambda _: "",
) -> None:
    """Apply a change to each named session; all are found before the first is changed."""
    sessions = [frame.session(ref) for ref in refs]
    if frame.settings.dry_run:
        for each in sessions:
            tell(f"Dry run: would {what} {_called(frame, each)}{along(each)}.")
        return
    done = [(each, found) for each in sessions if (found := change(each)) is not None]
    frame.out.items(
        "operations",
        (documents.operation(found) for _, found in done),
        lambda: (f"{_called(frame, each)}: {line(found.summary)}" for each, found in done),
        about={"workspace": None},
    )
    if done and frame.out.for_people:
        tell("Take it back with: takeback undo")


def _called(frame: Frame, session: Session) -> str:
    return f"{frame.short(session.id)} {line(session.title or session.name or 'untitled')}"


def _with_subagents(session: Session) -> str:
    """Return the words for the sub-agents of a session that go where it goes."""
    count = _below(session.tree())
    return f" and its {words.count(count, 'sub-agent')}" if count else ""


def _below(tree: Tree) -> int:
    return sum(1 + _below(child) for child in tree.children)


@verb("rename", changes=True)
@ref_argument("ref")
@click.argument("title")
def rename(frame: Frame, ref: str, title: str) -> None:
    """Change a session's title."""
    _each(frame, (ref,), "rename", lambda each: each.rename(title))


@verb("tag", changes=True)
@ref_argument("ref")
@click.argument("tags", nargs=-1, required=True)
def tag(frame: Frame, ref: str, tags: tuple[str, ...]) -> None:
    """Add tags to a session."""
    _each(frame, (ref,), "tag", lambda each: each.tag(*tags))


@verb("untag", changes=True)
@ref_argument("ref")
@click.argument("tags", nargs=-1, required=True)
def untag(frame: Frame, ref: str, tags: tuple[str, ...]) -> None:
    """Remove tags from a session."""
    _each(frame, (ref,), "untag", lambda each: each.untag(*tags))


@verb("pin", changes=True)
@_REFS
def pin(frame: Frame, refs: tuple[str, ...]) -> None:
    """Pin sessions, to mark them in lists."""
    _each(frame, refs, "pin", lambda each: each.pin())


@verb("unpin", changes=True)
@_REFS
def unpin(frame: Frame, refs: tuple[str, ...]) -> None:
    """Unpin sessions."""
    _each(frame, refs, "unpin", lambda each: each.unpin())


@verb("archive", changes=True, epilog=_DELETING)
@_REFS
def archive(frame: Frame, refs: tuple[str, ...]) -> None:
    """Hide sessions from lists."""
    _each(frame, refs, "archive", lambda each: each.archive())


@verb("unarchive", changes=True, epilog=_DELETING)
@_REFS
def unarchive(frame: Frame, refs: tuple[str, ...]) -> None:
    """Show sessions in lists again."""
    _each(frame, refs, "unarchive", lambda each: each.unarchive())


@verb("rm", changes=True, epilog=_DELETING)
@_REFS
def rm(frame: Frame, refs: tuple[str, ...]) -> None:
    """Move sessions to the trash with their sub-agents; main, directory and cron sessions start again empty."""
    _each(frame, refs, "move to the trash:", lambda each: frame.store.delete_session(each), _with_subagents)


@verb("restore", changes=True, epilog=_DELETING)
@_REFS
def restore(frame: Frame, refs: tuple[str, ...]) -> None:
    """Restore sessions from the trash, by id or by name, with the sub-agents that went with them."""
    found = tuple(_in_trash(frame, ref).id for ref in refs)
    along = " and the sub-agents that went with it"
    _each(frame, found, "restore", lambda each: frame.store.restore_session(each), lambda _: along)


def _in_trash(frame: Frame, ref: str) -> Session:
    """Find a session in the trash by name or id prefix."""
    named = [each for each in frame.store.iter_sessions(trash=True) if ref == each.name or each.id.startswith(ref)]
    if len(named) == 1:
        return named[0]
    if not named:
        raise Stop(f"no session in the trash matches {ref!r}; list them with: takeback ls -a --trash", NOT_FOUND)
    listed = "\n".join(f"  {each.id}  {line(each.title or '')}" for each in named[:10])
    raise Stop(f"{ref!r} matches several sessions in the trash:\n{listed}", NOT_FOUND)


@verb("purge", changes=True, epilog=_DELETING)
@ref_argument("ref")
@option("--include-forks", is_flag=True, help="Erase the sessions forked from it too.")
def purge(frame: Frame, ref: str, include_forks: bool) -> None:
    """Erase a session permanently, even from the trash, with its sub-agents. This cannot be undone."""
    session = _to_purge(frame, ref)
    forks = " and the sessions forked from it" if include_forks else ""
    what = f"{_called(frame, session)} ({session.message_count} messages){_with_subagents(session)}{forks}"
    if frame.out.for_people:
        frame.out.text([f"Erase {what} permanently"])
    if not agreed(frame.settings, "Erase?"):
        return
    done = frame.store.purge_session(session, include_forks=include_forks)
    frame.out.one(
        "purged",
        {
            "id": session.id,
            "sessions": [*done.sessions],
            "entries": done.entries,
            "blobs": done.blobs,
            "kept_entries": done.kept_entries,
            "needed_by": [*done.needed_by],
        },
        lambda: [str(done)],
    )


@verb("prune", changes=True, epilog=_DELETING)
@option("--policy", type=click.Choice(["unreferenced"]), default="unreferenced", show_default=True)
def prune(frame: Frame, policy: str) -> None:
    """Erase content that nothing needs any more, left behind by purged sessions and popped attachments.

    Content stored within the last hour stays. Each agent that changed gets a checkpoint first.
    """
    found = frame.store.prune(policy)
    if found.blobs:
        if frame.out.for_people:
            frame.out.text([f"{found}; nothing needs them any more"])
        if agreed(frame.settings, "Erase?"):
            found = frame.store.prune(policy, dry_run=False)
    document = {"blobs": found.blobs, "bytes": found.bytes, "erased": not found.dry_run}
    frame.out.one("pruned", document, lambda: _pruned_lines(found))


def _pruned_lines(found: Pruned) -> list[str]:
    if not found.blobs:
        return ["Nothing to erase: all content is needed, or was stored within the last hour."]
    return [] if found.dry_run else [str(found)]


def _to_purge(frame: Frame, ref: str) -> Session:
    try:
        return frame.session(ref)
    except Stop:
        try:
            return _in_trash(frame, ref)
        except Stop:
            pass
        raise


COMMANDS = {
    "rename": rename,
    "tag": tag,
    "untag": untag,
    "pin": pin,
    "unpin": unpin,
    "archive": archive,
    "unarchive": unarchive,
    "rm": rm,
    "restore": restore,
    "purge": purge,
    "prune": prune,
}
