"""Which steps of a log are regular, found in one pass, so that long histories stay cheap.

A step is a request, or an answer with the results of its calls. A step is regular if it is plainly valid where it is;
then it is sent as it was stored. Anything else is odd, and left to reading and repair, with one step on either side of
it: nothing that a repair does reaches further, but for ids that must be unique. Regular steps between two such places
are taken over as a ``Run``, which stands in the conversation for all of them. The first and the last step are never
taken over, since a conversation has rules of its own for how it begins and ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import force_setattr, replace

from ..errors import Corrupt
from ..model import pointer
from ..model.entry import Entry
from ..model.message import Body, Message
from ..providers.glance import MESSAGE, Answer, Count, GlancedMessage, decode
from ..providers.lenient import word
from ..providers.normal import Call, Item, Notes, Part, Text, clean
from ..providers.provider import Provider
from .budget import LogFacts
from .models import is_other
from .read import UNREADABLE, is_new, item_of
from .runs import Run, glance_of
from .value import RepairNote, repaired

Source = Message | Entry
_NOBODY: tuple[Call | None, str | None] = (None, None)
_STARTED = Body(role="assistant", status="started")
_MANY = 60  # odd steps, of which each counts for three and each other one takes one away
_TOLD = ("system", "developer")
_ASKED = ("user", "tool")  # an answer to one of these begins a step


class Judged:
    """A log divided into steps: where each begins among the sources and among what was judged, and which are odd.

    ``owners`` are the steps that use an id, ``unnamed`` the tools that were answered without one, ``aside`` the places
    of system messages, and ``items`` what was read of messages before their step turned out to be odd.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources, self._has_runs = sources, False
        self.glances, self.messages = list[GlancedMessage](), list[dict[str, object]]()
        self.begins, self.firsts, self.odd = list[int](), list[int](), set[int]()
        self.owners, self.unnamed, self.aside, self.items = dict[str, int](), set[str](), list[int](), dict[int, Item]()

    def conversation(self) -> list[Source | Run]:
        """Return what has to be read, with runs of regular steps in the place of their messages."""
        found, done, last = list[Source | Run](), 0, len(self.begins) - 1
        self._has_runs = False
        for before, behind in pairwise(sorted({*self.odd, -1, last + 1})):
            first, end = max(before + 2, 1), min(behind - 1, last)
            if first >= end:
                continue
            begins, ends = self.begins[first], self.begins[end]
            found += self._sources[done:begins]
            found.append(self._run(first, end))
            self._has_runs = True
            # What the system said is read wherever it is.
            found += [self._sources[at] for at in self.aside if begins <= at < ends]
            done = ends
        return [*found, *self._sources[done:]]

    def named(self, notes: Notes, upto: int) -> tuple[RepairNote, ...]:
        """Return what was repaired, by the seqs of messages; what is no message is called by what it is.

        What concerns the last answer, or came after it, is new: the model has not been asked with that yet.
        """
        since, starts = _last_answer(self._sources), set[int]()
        if notes:
            starts = {source.seq for source in self._sources if type(source) is not Message}
        return tuple(
            repaired(what, seqs, new=max(seqs, default=0) >= since, starts=starts, summary=upto)
            for what, seqs in notes.found()
        )

    def _run(self, first: int, end: int) -> Run:
        begins, ends = self.firsts[first], self.firsts[end]
        low, high = self.glances[begins].place, self.glances[ends].place
        return Run(self.glances[begins:ends], self.messages[low:high], self.firsts[first:end], low)

    def _is_taken(self, at: int) -> bool:
        return 0 < at < len(self.begins) - 1 and self.odd.isdisjoint((at - 1, at, at + 1))

    def leave(self, items: Iterable[Item], provider: Provider) -> bool:
        """Leave to repair every step that shares an id with the given items; return whether there were any."""
        if not self._has_runs:
            return False
        rules, names, unnamed = provider.rules, set[str | None](), False
        for item in items:
            for part in item.parts:
                if type(part) is Call:
                    unnamed = unnamed or part.id in self.unnamed
                    if rules.unique_ids:
                        names.add(rules.sent_id(part))
            if rules.itemised:
                names.add(f"item {rules.item_id(item)}")
        steps = range(len(self.begins)) if unnamed else [self.owners[name] for name in names if name in self.owners]
        found = {step for step in steps if self._is_taken(step)}
        self.odd |= found
        return bool(found)


def judged(
    sources: Sequence[Source], speaks: Provider, model: str | None, count: Count, known: LogFacts, *, most: float
) -> Judged:
    """Judge each step of a log for a provider and a model; record what is pinned and counted in it.

    Results with a text longer than ``most`` characters are odd, since they may have to be shortened.
    """
    return _Look(sources, speaks, model, count, most).along(sources, known)


class _Look:
    """One pass over the log: which calls are open, who spoke last, what has to follow."""

    def __init__(
        self, sources: Sequence[Source], speaks: Provider, model: str | None, count: Count, most: float
    ) -> None:
        self._speaks, self._model, self._count, self._most = speaks, model, count, most
        self._rules = rules = speaks.rules
        self._alternates, self._apart = rules.alternates, rules.itemised
        self._blind = model is not None and rules.blind(model)
        self._signs = model is not None and rules.signs(model)
        self._found, self._names = Judged(sources), set[str]()
        self._fresh = set[str]()  # ids of the calls of this step
        self._waiting = dict[str, tuple[Call | None, str | None]]()
        self._notes = Notes()
        self._joining: Item | None = None  # not written yet, since what follows may belong to the same message
        self._leads = ""
        self._odd_before, self._skips = 0, False

    def along(self, sources: Sequence[Any], known: LogFacts) -> Judged:
        """Judge every source; written flat, since it runs for every message."""
        found, form, judge, count = self._found, self._rules.form, self._speaks.judge, self._count
        glances, messages, begins, most = found.glances, found.messages, found.begins, self._most
        bodies, named, last, is_odd = dict[bytes | None, Body](), self._model is not None, "", False
        take = {"user": self._takes_request, "assistant": self._takes_answer, "tool": self._takes_results}
        for index, source in enumerate(sources):
            if type(source) is not Message:
                if not is_new(source.content):
                    continue
                body, value = _STARTED, None
            else:
                try:
                    if source.raw is not None and source.data in bodies:  # beside the form they hold little
                        force_setattr(source, "_body", bodies[source.data])
                    body = source.body
                    if body.form is not None and body.usage is None:
                        bodies[source.data] = body
                    # This decoder refuses what would have to be cleaned, so nothing it returns needs cleaning.
                    value = decode(source.raw or b"") if body.form == form else None
                    if body.pointer is not None:
                        value = pointer.resolve(value, body.pointer)
                except UNREADABLE:
                    body, value = _unreadable(source), None
            role, plain = body.role, body.status == "complete"
            if body.usage is not None or body.metadata is not None:
                known.watch(source.seq, body, form)
                plain = plain and (body.usage is None or role == "assistant")  # other counts are for repair to judge
            if role in _TOLD and plain and self._hears(source, known):
                found.aside.append(index)
                continue
            # A message begins a step, unless it goes on with what was said before it.
            if role == "user" or (role == "assistant" and last in _ASKED) or not begins:
                is_odd = self._begins(index, is_odd)
            before, last = last, role
            if is_odd:
                continue
            if not plain:
                glance = None
            elif body.form is None:
                glance = self._glance_at_ours(source, body)
            elif body.form == form:
                glance = judge(value, role, count) if type(value) is dict else None
            else:
                glance = self._glance_at_item(source)
            if (
                glance is None
                or glance.longest > most
                or (named and self._differs(glance, body, value, before))
                or (takes := take.get(glance.role)) is None
                or not takes(glance, before)
            ):
                is_odd = self._leaves(source, glance)
                continue
            glance.seq, glance.source, glance.place = source.seq, source, len(messages)
            if glance.message is not None:
                messages.append(glance.message)
                glances.append(glance)
            else:
                glances += self._write(glance)
        found.odd |= {len(begins) - 1} if begins else set()  # how a conversation ends is for repair to judge
        return found

    def _begins(self, index: int, is_odd: bool) -> bool:
        """Begin a step; the one before it is odd if anything is missing in it. Return whether to leave it unjudged.

        Where nearly every step is odd, hardly one is taken over. So the more odd ones there were, the fewer are judged.
        """
        found = self._found
        if is_odd or self._waiting or self._leads:
            found.odd.add(len(found.begins) - 1)
            self._odd_before += 0 if self._skips else 4
            self._waiting.clear()
            self._leads, self._joining = "", None
        if self._joining is not None:
            self._flush()
        if self._odd_before:
            self._odd_before -= 1
            self._skips = self._odd_before > _MANY
        found.begins.append(index)
        found.firsts.append(len(found.glances))
        self._fresh.clear()
        return self._skips

    def _leaves(self, source: Message, seen: GlancedMessage | None) -> bool:
        """Leave the rest of a step to repair."""
        self._found.odd.add(len(self._found.begins) - 1)
        if seen is not None and seen.item is not None:
            self._found.items[source.seq] = seen.item
        return True

    def _hears(self, source: Message, known: LogFacts) -> bool:
        """Whether a system message is plain text, which is collected separately; a developer's may stay in place."""
        item = self._item(source)
        if item is not None and item.role == "developer" and self._rules.developer:
            known.pinned.add(source.seq)
            return False
        return item is not None and all(type(part) is Text for part in item.parts)

    # ------------------------------------------------------------------ one message by itself

    def _differs(self, seen: GlancedMessage, body: Body, value: Any, last: str) -> bool:
        """Whether an answer contains what the requested model cannot read, or lacks what it requires."""
        if seen.role != "assistant":
            return False
        if (seen.tied and self._blind) or (seen.bare and self._signs):
            return True
        # In an answer of many items only the last names the model, which then applies to those before it.
        concerns = seen.tied or (self._apart and (body.form == self._rules.form or last == "assistant"))
        said_by = body.model or (word(value.get("model")) if type(value) is dict else "")
        return concerns and is_other(said_by, self._model)

    def _glance_at_ours(self, source: Message, body: Body) -> GlancedMessage | None:
        text, role = source.content if body.content_at else body.content, body.role
        more = body.tool_calls or body.tool_results or body.attachments or body.extra
        if type(text) is str and not more and role in ("user", "assistant"):  # the common case
            if not text or (self._rules.refuses_blank and text.isspace()) or clean(text) is not text:
                return None
            return GlancedMessage(role, MESSAGE + self._count(text), self._speaks.plain(role, text), True)
        return self._glance_at_item(source)

    def _glance_at_item(self, source: Message) -> GlancedMessage | None:
        """Judge a message in our own form or in another provider's, which has to be written anew."""
        item = self._item(source)
        found = None if item is None else glance_of(item, self._count, self._rules.refuses_blank)
        return found if found is not None and found.plain else None

    def _item(self, source: Message) -> Item | None:
        """Read a message; None if there is anything to note about it."""
        item = item_of(source, self._notes)
        if self._notes:
            item, self._notes = None, Notes()
        return item

    # ------------------------------------------------------------------ where it stands

    def _takes_request(self, seen: GlancedMessage, last: str) -> bool:
        if (self._alternates and last in ("user", "tool")) or (self._apart and not self._follows(seen)):
            return False
        seen.is_request = True
        return True

    def _takes_answer(self, seen: GlancedMessage, last: str) -> bool:
        if self._apart:
            if (self._waiting and seen.speaks) or not self._follows(seen):
                return False
        elif (last == "assistant" and not self._goes_on(seen)) or (self._alternates and not last):
            return False
        return not seen.calls or all([self._takes_call(call) for call in seen.calls])  # noqa: C419 - faster

    def _goes_on(self, seen: GlancedMessage) -> bool:
        """Whether an answer belongs to the same message as the one before it: it is an item of another provider."""
        found, item = self._found, seen.item
        if item is None or item.form is None or (self._waiting and seen.speaks):
            return False
        if self._joining is None and len(found.glances) > found.firsts[-1]:
            before = found.glances[-1].source
            if before is not None and before.body.form is None:  # ours is joined as well, though it was written
                self._joining = item_of(before, Notes())
                del found.messages[-1]
        return self._joining is not None

    def _follows(self, seen: GlancedMessage) -> bool:
        """Whether an item may follow here and its id is not used by another item; call ids are separate."""
        if self._leads and (seen.role != "assistant" or (self._leads == "id" and not seen.id)):
            return False
        self._leads = seen.leads
        return seen.id is None or self._owns(f"item {seen.id}")

    def _owns(self, name: str) -> bool:
        """Claim an id for this step; if it is another's, repair must see both."""
        found, step = self._found, len(self._found.begins) - 1
        owner = found.owners.setdefault(name, step)
        if owner == step and name not in self._fresh:
            self._fresh.add(name)
            return True
        found.odd.add(owner)
        return False

    def _takes_call(self, call: Call) -> bool:
        rules, sent, name = self._rules, self._rules.sent_id(call), call.name
        if call.id in self._waiting or type(call.arguments) is not dict:
            return False
        if name not in self._names:
            if not rules.name.fullmatch(name):
                return False
            self._names.add(name)
        if sent is not None:
            if len(sent) > rules.most or not rules.id.fullmatch(sent):
                return False
            if rules.unique_ids:
                if not self._owns(sent):
                    return False
            elif sent in self._fresh:
                return False
            else:
                self._fresh.add(sent)
        self._waiting[call.id] = call, sent
        return True

    def _takes_results(self, seen: GlancedMessage, last: str) -> bool:
        if self._apart and not self._follows(seen):
            return False
        if last == "assistant":
            self._flush()
        tied: list[Part] = []
        for answer in seen.answers:
            call = self._answered(answer)
            if call is None:
                return False
            if answer.result is not None:
                tied.append(replace(answer.result, to=call, name=call.name))
        if seen.item is not None:
            seen.item = replace(seen.item, parts=tuple(tied))
            return True
        # Stored messages that would have to be merged are left to repair.
        return not self._alternates or (not self._waiting and self._joining is None)

    def _answered(self, answer: Answer) -> Call | None:
        """Return the call that a result answers if the result is valid as it is; without an id, the next open call."""
        waiting, id = self._waiting, answer.id
        if id is None or self._rules.ordered:
            first = next(iter(waiting), None)
            if first is None or id not in (None, first) or (id is None and answer.name in waiting):
                return None
            if id is None and answer.name is not None:
                self._found.unnamed.add(answer.name)
            id = first
        call, sent = waiting.pop(id, _NOBODY)
        if call is None or answer.result is not None:
            return call
        return call if sent == answer.id and answer.name in (None, call.name) else None

    # ------------------------------------------------------------------ what has to be written

    def _write(self, seen: GlancedMessage) -> list[GlancedMessage]:
        """Write a message that was not stored as it is sent, now or with what follows; return its glances.

        Results of one step become one message where roles must alternate, and so do the items of an answer that
        another provider gave, wherever calls lie inside messages. Elsewhere each result is a message of its own.
        """
        item, before, rules = seen.item, self._joining, self._rules
        if item is None:
            return [seen]
        said = [seen] if len(seen.answers) < 2 else [*self._results(seen, item)]
        if before is not None:
            item, said[0].joined = replace(before, parts=(*before.parts, *item.parts), raw=None), True
        self._joining = item
        seen.item = None  # it is tied to calls of this pass; whoever needs an item reads the source again
        goes_on = rules.alternates and self._waiting if seen.role == "tool" else item.form and not rules.itemised
        if not goes_on:
            self._flush()
        if before is None or not rules.per_message:
            return said
        last = self._found.glances[-1]  # for this provider both are one message from the start
        last.tokens += seen.tokens - MESSAGE
        last.calls, last.item = [*last.calls, *seen.calls], item
        return []

    def _results(self, seen: GlancedMessage, item: Item) -> Iterator[GlancedMessage]:
        """Yield a glance for each result of a message."""
        for answer in seen.answers:
            part = answer.result
            each = glance_of(replace(item, parts=() if part is None else (part,), raw=None), self._count)
            each.place, each.joined = seen.place, self._alternates and answer is not seen.answers[0]
            yield each

    def _flush(self) -> None:
        if self._joining is not None:
            self._found.messages += self._speaks.write([self._joining], self._model)
            self._joining = None


def _last_answer(sources: Sequence[Source]) -> int:
    """Return the seq of the first message of the last answer that was completed; 0 if there is none."""
    found = 0
    for source in reversed(sources):
        if type(source) is not Message:
            continue
        try:
            answers = source.body.role == "assistant"
            complete = source.body.status == "complete"
        except Corrupt:
            answers = complete = False
        if found and not answers:
            break
        found = source.seq if answers and (found or complete) else found
    return found


def _unreadable(source: Message) -> Body:
    """Return what can still be read of a message."""
    try:
        return replace(source.body, status="unreadable")
    except Corrupt:
        return Body(role="", status="unreadable")
