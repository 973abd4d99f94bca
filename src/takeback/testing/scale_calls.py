"""The calls that must cost the same however large a store is, measured on one that ``scale`` built.

``measure`` runs each of ``CALLS`` a few times and returns its work. All writing calls of a round use the same session,
in order, from the first append to the purge, and rounds use sessions at the same places in stores of all sizes. Where
the number of results is known it is checked, so that no call is cheap because it found nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from takeback import Ambiguous, Session, Store
from takeback.clock import to_datetime
from takeback.testing.scale import BETA, CREWS, FEW, KEPT, TEXT, TINY, Open, World
from takeback.testing.work import Counter, Work

ROUNDS = 4  # the first one only prepares statements
OPENING = "open the store alone"
NOWHERE = "nowhere"


class Scene:
    """An open store for the calls, and the session of each round."""

    def __init__(self, world: World, store: Store) -> None:
        self.world, self.store = world, store
        self.beta, self.tiny = store.scoped(BETA), store.scoped(TINY)
        self.ids = world.spots(ROUNDS)
        self.targets = [store.get_session(each) for each in self.ids]
        self.long, self.parent = store.get_session(world.long), store.get_session(world.parent)
        self.early = [change.cursor for change in islice(store.events(), 50)][-1]
        self.all_of_tiny = [change.cursor for change in self.tiny.events()]
        self.made: dict[str, Any] = {}  # what a call made, for a later call


Do: TypeAlias = Callable[[], Any]
Prepare: TypeAlias = Callable[[Scene, int], Do]


class Call(NamedTuple):
    """A call to measure: ``prepare`` sets it up, uncounted, and returns it; ``gives`` is how many results to expect."""

    name: str
    prepare: Prepare
    trial: str = ""
    gives: int | None = None
    rounds: int = ROUNDS
    grows: bool = False  # by its nature: it has to visit every session or all content


def measure(world: World, counter: Counter, open_: Open, calls: Iterable[Call] | None = None) -> dict[str, Work]:
    """Return the work of each call on a built store that nobody has open."""
    found = {OPENING: _middle([_opened(world, counter, open_) for _ in range(ROUNDS)][1:])}
    with open_(world.clock) as store:
        scene = Scene(world, store)
        for call in CALLS if calls is None else calls:
            works = [_called(scene, counter, call, round_) for round_ in range(call.rounds)]
            found[call.name] = _middle(works[1:] or works)
    return found


def _opened(world: World, counter: Counter, open_: Open) -> Work:
    with counter.counted() as work:
        store = open_(world.clock)
    store.close()
    return work


def _called(scene: Scene, counter: Counter, call: Call, round_: int) -> Work:
    do = call.prepare(scene, round_)
    scene.world.clock.advance(1000)
    with counter.counted() as work:
        answer = do()
    if call.gives is not None and len(answer) != call.gives:
        raise AssertionError(f"{call.name} returned {len(answer)} results, not {call.gives}")
    return work


def _middle(works: list[Work]) -> Work:
    return sorted(works, key=lambda work: work.total)[len(works) // 2]


def _on(do: Callable[[Session], Any]) -> Prepare:
    """Return a call on the session of the round."""
    return lambda scene, round_: lambda: do(scene.targets[round_])


def _of(do: Callable[[Store], Any]) -> Prepare:
    """Return a call on the store."""
    return lambda scene, round_: lambda: do(scene.store)


def _list(**filters: Any) -> Prepare:
    return lambda scene, round_: lambda: scene.store.list_sessions(**filters)


def _list_beta(**filters: Any) -> Prepare:
    return lambda scene, round_: lambda: scene.beta.list_sessions(**filters)


def _since(minutes: int) -> Prepare:
    """List what changed in the last minutes, or with a negative number nothing: none changed in the future."""

    def prepare(scene: Scene, round_: int) -> Do:
        moment = to_datetime(scene.world.clock.now_ms()) - timedelta(minutes=minutes)
        return lambda: scene.store.list_sessions(since=moment, archived=None)

    return prepare


def _next_page(scene: Scene, round_: int) -> Do:
    cursor = scene.store.list_sessions().cursor
    return lambda: scene.store.list_sessions(cursor=cursor)


def _ambiguous(scene: Scene, round_: int) -> Do:
    def do() -> list[str]:
        try:
            scene.store.resolve(scene.ids[round_][:2])
        except Ambiguous as error:
            return list(error.candidates)
        return []

    return do


def _rewound(scene: Scene, round_: int) -> Do:
    session = scene.store.get_session(scene.world.rare["rewound"][round_])
    return lambda: session.messages()


def _name_of(scene: Scene, round_: int) -> Do:
    spots = [scene.store.get_session(each) for each in scene.world.spots(8 * ROUNDS)]
    names = [each.name for each in spots if each.name]
    return lambda: scene.store.get_session(names[round_])


def _message(scene: Scene, round_: int) -> Do:
    session = scene.targets[round_]
    ids = [message.id for message in session.messages() if message.role == "assistant"]
    return lambda: session.message(ids[0])


def _rewind(scene: Scene, round_: int) -> Do:
    session = scene.targets[round_]
    point = session.head.seq - KEPT
    return lambda: session.rewind(point)


def _preview(scene: Scene, round_: int) -> Do:
    session = scene.targets[round_]
    point = session.head.seq - KEPT
    return lambda: session.preview_rewind(point)


def _feed(scene: Scene, round_: int) -> Do:
    return lambda: list(islice(scene.store.events(scene.early), 100))


def _feed_of_tiny(scene: Scene, round_: int) -> Do:
    return lambda: list(scene.tiny.events())


def _nothing_new(scene: Scene, round_: int) -> Do:
    return lambda: list(scene.tiny.events(scene.all_of_tiny[-1]))


def _crew(scene: Scene, round_: int) -> Do:
    return lambda: scene.store.checkpoint_agent(CREWS[round_])


def _crew_again(scene: Scene, round_: int) -> Do:
    scene.store.get_session(scene.world.rare[CREWS[round_]][0]).user("And then?")
    return lambda: scene.made.update({CREWS[round_]: scene.store.checkpoint_agent(CREWS[round_])})


def _restore_crew(scene: Scene, round_: int) -> Do:
    scene.store.get_session(scene.world.rare[CREWS[round_]][1]).user("No.")
    return lambda: scene.store.restore_checkpoint(scene.made[CREWS[round_]])


def _delete_crew(scene: Scene, round_: int) -> Do:
    return lambda: scene.store.delete_agent(CREWS[round_])


def _large(scene: Scene, round_: int) -> Do:
    return lambda: scene.store.checkpoint_agent("main")


def _large_again(scene: Scene, round_: int) -> Do:
    scene.targets[round_].user("Is it done?")
    return lambda: scene.store.checkpoint_agent("main")


def _create(scene: Scene, round_: int) -> Do:
    return lambda: scene.store.create_session(f"new {round_}", agent="main", tags=["common"], workspace="/")


def _run(scene: Scene, round_: int) -> Do:
    def do() -> None:
        with scene.store.session(scene.targets[round_]):
            pass

    return do


def _few(**filters: Any) -> Prepare:
    """List no more sessions than a small store has."""
    return _list(**filters, limit=FEW)


def _append_with_key(session: Session) -> object:
    return session.append({"role": "user", "content": TEXT}, idempotency_key="again")


def _search(query: str, **filters: Any) -> Prepare:
    """Search once everything is in the index."""

    def prepare(scene: Scene, round_: int) -> Do:
        scene.store.search(NOWHERE)
        return lambda: scene.store.search(query, **filters)

    return prepare


def _search_recent(scene: Scene, round_: int) -> Do:
    moment = to_datetime(scene.world.clock.now_ms()) - timedelta(minutes=20)
    return lambda: scene.store.search("mirror", since=moment)


def _search_again(scene: Scene, round_: int) -> Do:
    scene.long.user(f"What about the {NOWHERE} {round_}?")
    return lambda: scene.store.search(f"{NOWHERE} {round_}", kinds=["message"])


# The order matters: a call finds what earlier ones left. All rounds of a call run before the next call.
CALLS: tuple[Call, ...] = (
    Call("append a message", _on(lambda session: session.user(TEXT))),
    Call("append with a key", _on(_append_with_key)),
    Call("append to the long session", lambda scene, _: lambda: scene.long.user(TEXT)),
    Call("get by id", lambda scene, round_: lambda: scene.store.get_session(scene.ids[round_])),
    Call("get by key", lambda scene, round_: lambda: scene.store.get_session(scene.targets[round_].key)),
    Call("get by name", _name_of, "T85"),
    Call("find a name that none has", _of(lambda store: store.find_session(NOWHERE)), "T85"),
    Call("resolve a prefix", lambda scene, round_: lambda: scene.store.resolve(scene.ids[round_][:20]), "T85"),
    Call("resolve a prefix of many", _ambiguous, "T85", 10),
    Call("messages, the last 50 of the long session", lambda scene, _: lambda: scene.long.messages(limit=50), gives=50),
    Call("context within a budget", lambda scene, _: lambda: scene.long.context("anthropic", max_tokens=300)),
    Call("messages, all of a short session", _on(lambda session: session.messages())),
    Call("messages after one rewind", _rewound, "T83"),
    Call("message by id", _message),
    Call("pending calls of the long session", lambda scene, _: lambda: scene.long.pending_calls(), gives=3),
    Call("list the newest", _list(), gives=50),
    Call("list the next page", _next_page, gives=50),
    Call("list by creation", _list(order="created"), gives=50),
    Call("list by agent, common", _few(agent="helper"), gives=FEW),
    Call("list by agent, rare", _list(agent=CREWS[0]), "T86", FEW),
    Call("list by tag, common", _few(tag="common"), gives=FEW),
    Call("list by tag, rare", _list(tag="rare"), "T86", FEW),
    Call("list by tag, none", _list(tag=NOWHERE), "T86", 0),
    Call("list by metadata, common", _few(metadata={"team": "core"}), "T86", FEW),
    Call("list by metadata, rare", _list(metadata={"ticket": 7}), "T86", FEW),
    Call("list by metadata, common and rare", _list(metadata={"team": "core", "ticket": 7}), "T86", FEW),
    Call("list by metadata, none", _list(metadata={"team": "core", "ticket": 8}), "T86", 0),
    Call("list the oldest change first", _list(order="updated_asc"), gives=50),
    Call("list with state", _list(with_state=("summary",)), gives=50),
    Call("list by workspace, common", _few(workspace="/takeback/6"), "T86", FEW),
    Call("list by workspace, rare", _list(workspace="/takeback/rare"), "T86", FEW),
    Call("the newest of a workspace", _of(lambda store: store.resolve("@", workspace="/takeback/rare")), "T86"),
    Call("list by kind, common", _few(kinds="subagent"), "T86", FEW),
    Call("list by kind, rare", _list(kinds="cron"), "T86", FEW),
    Call("list by status, active", _few(status="active"), gives=FEW),
    Call("list by status, common", _few(status="completed"), gives=FEW),
    Call("list by status, rare", _list(status="error"), "T86", FEW),
    Call("list by status, interrupted", _list(status="interrupted"), gives=0),
    Call("list archived, common", _few(archived=True), "T86", FEW),
    Call("list archived, rare", _list_beta(archived=True), "T86", FEW),
    Call("list pinned, common", _list_beta(pinned=True, limit=FEW), "T86", FEW),
    Call("list pinned, rare", _list(pinned=True), "T86", FEW),
    Call("list since some minutes ago", _since(20), "T86"),
    Call("list since a moment to come", _since(-20), "T86", 0),
    Call("list by parent", lambda scene, _: lambda: scene.store.list_sessions(parent=scene.world.parent), "T85", 4),
    Call("children", lambda scene, _: lambda: scene.parent.children(), "T85", 4),
    Call("list by label, common", _few(label="worker-0"), "T85", FEW),
    Call("list by label, rare", _list(label="rare"), "T85", FEW),
    Call("list the trash", _few(trash=True), gives=FEW),
    Call("list agents", _of(lambda store: store.list_agents())),
    Call("create a session", _create),
    Call("spawn a sub-agent", _on(lambda session: session.spawn("Look.", label="looker"))),
    Call("rename", _on(lambda session: session.rename("Lock file"))),
    Call("tag", _on(lambda session: session.tag("rare"))),
    Call("complete", _on(lambda session: session.complete())),
    Call("reopen", _on(lambda session: session.reopen())),
    Call("send a message", _on(lambda session: session.send("Done."))),
    Call("receive a message", _on(lambda session: session.receive()), gives=1),
    Call("run a session", _run),
    Call("checkpoint", _on(lambda session: session.checkpoint("here"))),
    Call("preview a rewind", _preview),
    Call("rewind", _rewind),
    Call("undo", _on(lambda session: session.undo())),
    Call("fork", _on(lambda session: session.fork(name="other"))),
    Call("fork as a session", _on(lambda session: session.fork(as_session=True))),
    Call("feed, 100 changes", _feed, "T88", 100),
    Call("feed of a small scope", _feed_of_tiny, "T88"),
    Call("feed of a small scope, nothing new", _nothing_new, "T88", 0),
    Call("checkpoint of an agent with 5 sessions, the first", _crew, "T89"),
    Call("checkpoint of an agent with 5 sessions, the next", _crew_again, "T89"),
    Call("restore an agent with 5 sessions", _restore_crew, "T89"),
    Call("delete an agent with 5 sessions", _delete_crew, "T89"),
    Call("checkpoint of a large agent, the first", _large, "T89", rounds=1, grows=True),
    Call("checkpoint of a large agent, the next", _large_again, "T89"),
    Call("delete a session", lambda scene, round_: lambda: scene.store.delete_session(scene.targets[round_])),
    Call("restore a session", lambda scene, round_: lambda: scene.store.restore_session(scene.targets[round_])),
    Call("purge a session", lambda scene, round_: lambda: scene.store.purge_session(scene.targets[round_]), "T90"),
    Call("prune, a dry run", _of(lambda store: store.prune()), "T90", grows=True),
    Call("operations, the last 20", _of(lambda store: store.operations(limit=20)), "T90", 20),
    Call("stats", _of(lambda store: store.stats()), "T87", grows=True),
    # Last, since a store that nobody searched has no index, and erasing from one costs what it is large.
    Call("search for a rare word", _search("cron"), "P6", FEW),
    Call("search for a part of a rare word", _search("ewoun"), "P6", FEW),
    Call("search for a phrase that none has", _search('"mirror lock"'), "P6", 0),
    Call("search for a very common word", _search("mirror"), "P6", 20),
    Call("search for two common words", _search("mirror package"), "P6", 20),
    Call("search in a rare workspace", _search("mirror", workspace="/takeback/rare"), "P6", 20),
    Call("search by session", _search("mirror", group="session"), "P6", 20),
    Call("search since some minutes ago", _search_recent, "P6"),
    Call("search without words", _search("", since=to_datetime(0)), "P6", 20),
    Call("search after an append", _search_again, "P6", 1),
)


def named(trial: str) -> list[str]:
    """Return the names of the calls of a trial; ``""`` means those without one."""
    return [OPENING] * (trial == "T84") + [call.name for call in CALLS if call.trial == trial]
