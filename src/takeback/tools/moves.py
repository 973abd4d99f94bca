"""The tools that move in time: a rewind that is previewed and then applied, forks, and taking an operation back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ..errors import Conflict, Invalid
from .answers import NOTE, Data, OperationSeen, RewindPlan, SessionLine, cut, operation, plan, session_lines
from .bound import BoundStore
from .digests import digest_of, require
from .parameters import Digest, Name, PointRef

if TYPE_CHECKING:
    from ..client.rewind import Rewind
    from ..client.session import Session
    from ..model.operation import Operation

WithFiles = Annotated[bool, Meta(description="Whether files go back; true by default.")]
WithConversation = Annotated[bool, Meta(description="Whether the conversation goes back; true by default.")]
Paths = Annotated[list[str], Meta(description="Only these files, or what is below these directories, go back.")] | None
Overwrite = (
    Annotated[
        list[str],
        Meta(description="Files to bring back even though somebody else changed them since, as the plan names them."),
    ]
    | None
)


class Rewound(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A rewind was applied; undo_operation takes it back."""

    operation: OperationSeen
    files_changed: int


class Forked(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A branch, or a session of its own, was made."""

    branch: str = ""
    session: SessionLine


class Undoing(Data, frozen=True, kw_only=True, omit_defaults=True):
    """What taking an operation back would do, or that it was done."""

    undone: bool
    digest: str = ""
    plan: str = ""
    operation: OperationSeen


def preview_rewind(
    here: BoundStore,
    point: PointRef,
    files: WithFiles = True,
    conversation: WithConversation = True,
    paths: Paths = None,
    overwrite: Overwrite = None,
) -> RewindPlan:
    """See what going back to a point would do, path by path, and what would stay and why. Nothing is changed.

    apply_rewind does it, with the same arguments and the digest of this answer.
    """
    session, _ = here.point(point)
    return plan(_rewind(here, point, files, conversation, paths, overwrite), session.id)


def _rewind(
    here: BoundStore,
    point: str,
    files: bool,
    conversation: bool,
    paths: list[str] | None,
    overwrite: list[str] | None,
) -> Rewind:
    session, target = here.point(point)
    return session.preview_rewind(
        target,
        files=files and (paths is None or bool(paths)),
        conversation=conversation and paths is None,
        paths=paths,
        overwrite=overwrite or (),
    )


def apply_rewind(
    here: BoundStore,
    point: PointRef,
    digest: Annotated[str, Meta(description="The digest of the preview, which must have shown just this.")],
    files: WithFiles = True,
    conversation: WithConversation = True,
    paths: Paths = None,
    overwrite: Overwrite = None,
) -> Rewound:
    """Go back to a point as preview_rewind showed it. What leaves is kept on a branch; undo_operation takes it back.

    If the session or one of the files has changed since the preview, nothing is done.
    """
    found = _rewind(here, point, files, conversation, paths, overwrite)
    if found.digest != digest:
        raise Conflict(
            "this digest is not that of the plan as it is now: the session or its files have changed since the preview,"
            " or other arguments were given. Nothing was done. Call preview_rewind again, and read what it says",
            expected=digest,
            found=found.digest,
        )
    changed = len(found.files)
    return Rewound(note=NOTE, operation=operation(found.apply()), files_changed=changed)


def fork_session(
    here: BoundStore,
    point: PointRef,
    name: Name = None,
    as_session: Annotated[
        bool, Meta(description="Whether to make a session of its own; by default a branch of the same session.")
    ] = False,
) -> Forked:
    """Start a branch at a point, or a new session that begins with everything up to it. Nothing is moved or copied."""
    session, at = here.point(point)
    if as_session:
        made = session.fork(at, name=name, as_session=True)
        return Forked(note=NOTE, session=session_lines([made])[0])
    branch = session.fork(at, name=name)
    return Forked(note=NOTE, branch=cut(branch.name), session=session_lines([session])[0])


def undo_operation(
    here: BoundStore,
    operation: Annotated[str, Meta(description="The operation's id, as other tools answer it.", min_length=1)],
    digest: Digest = None,
) -> Undoing:
    """Take an operation back: a rewind, a fork, a deletion, the restoring of a checkpoint, a change of an agent.

    In two steps: called without a digest it only says what would happen.
    """
    return _undoing(here, operation, digest)


def _undoing(here: BoundStore, id: str, digest: str | None) -> Undoing:
    found = here.store.get_operation(id)
    if found.undone:
        raise Conflict(f"operation {id!r} was taken back already", found=id)
    preview = _preview(here, found)
    now = preview.digest if preview is not None else digest_of("undo_operation", found.id)
    if digest is None:
        said = f"Takes back: {found.summary}" if preview is None else str(preview)
        return Undoing(note=NOTE, undone=False, digest=now, plan=cut(said, 10_000), operation=operation(found))
    require(digest, now, f"taking back operation {id!r}")
    done = here.store.undo(found) if preview is None else preview.apply()
    return Undoing(note=NOTE, undone=True, operation=operation(done))


def _preview(here: BoundStore, found: Operation) -> Rewind | None:
    """Return what taking an operation back does to files and a conversation, None if it moves neither."""
    try:
        if found.session_id is not None:
            session: Session = here.store.get_session(found.session_id)
            return session.preview_undo(found.id)
        return here.store.workspace(found.workspace).preview_undo(found.id) if found.workspace else None
    except Invalid:
        return None
