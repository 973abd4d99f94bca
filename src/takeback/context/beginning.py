"""The beginning of a log that needs no repair, found in one quick pass, so that long histories stay cheap.

The pass is conservative: the first message that is not plainly valid, and everything after it, is left to reading and
repair. The rest must start where repairing it alone gives the same result: at a request with no call open, or within a
turn at an answer to tool results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import Corrupt
from ..model.entry import Entry
from ..model.message import Body, Message
from ..providers.glance import MESSAGE, Answer, Count, GlancedMessage, decode
from ..providers.lenient import word
from ..providers.normal import Call, Item, Notes, Part, Text, clean, texts
from ..providers.provider import Provider
from .budget import LogFacts
from .models import is_other
from .read import is_new, item_of
from .steps import of_item

Source = Message | Entry
_UNREADABLE = (Corrupt, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NOBODY: tuple[Call | None, str | None] = (None, None)


class Beginning:
    """The steps and messages of a beginning, its system messages, and the ids used in it."""

    def __init__(self) -> None:
        self.steps, self.messages, self.system = list[GlancedMessage](), list[dict[str, object]](), list[str]()
        self.ids = set[str]()
        self.count, self.seq = 0, 0
        """How many sources it covers, and the seq of the next one."""

    def tokens(self, first: int) -> int:
        """Return the tokens of its steps from ``first`` on, as they are sent."""
        return sum(step.tokens - MESSAGE * step.joined for step in self.steps[first:])

    def from_step(self, first: int) -> list[dict[str, object]]:
        """Return its messages from a step on, which must be a request."""
        return self.messages[self.steps[first].place :] if first < len(self.steps) else []


def find_beginning(
    sources: Sequence[Source], speaks: Provider, model: str | None, count: Count, known: LogFacts, *, amid: bool
) -> Beginning:
    """Find the beginning that is valid for a provider and a model; record what is pinned and counted in it.

    It may end ``amid`` a turn only if nothing is left out: what is kept before a cut must be followed by a request.
    """
    look = _Look(speaks, model, count, amid)
    look.along(sources, known)
    return look.found()


class _Look:
    """One pass over the log: which calls are open, who spoke last, what has to follow."""

    def __init__(self, speaks: Provider, model: str | None, count: Count, amid: bool) -> None:
        self._speaks, self._model, self._count, self._amid = speaks, model, count, amid
        self._rules = rules = speaks.rules
        self._judge, self._is_strange = speaks.judge, _stranger(model)
        self._form, self._alternates = rules.form, rules.alternates
        self._apart = rules.itemised
        self._blind = model is not None and rules.blind(model)
        self._signs = model is not None and rules.signs(model)
        self._seen, self._names = Beginning(), set[str]()
        self._answered_at = (0, 0, 0, 0, 0)  # source, seq; steps, messages, system messages before the last answer
        self._kept = (0, 0, 0)  # steps, messages and system messages before the last possible end
        self._fresh = set[str]()  # ids since then
        self._waiting = dict[str, tuple[Call | None, str | None]]()
        self._joining: Item | None = None
        self._last = self._leads = ""

    def found(self) -> Beginning:
        """Return everything before the last place where the beginning may end."""
        if self._answered_at[0] > self._seen.count:
            self._ends_amid()
        found, (steps, messages, system) = self._seen, self._kept
        del found.steps[steps:], found.messages[messages:], found.system[system:]
        return found

    def along(self, sources: Sequence[Source], known: LogFacts) -> None:
        """Advance to the first source that is not valid where it is; written flat, since it runs for every message."""
        steps, messages, system = self._seen.steps, self._seen.messages, self._seen.system
        judge, amid = self._judge, self._amid
        take = {"user": self._takes_request, "assistant": self._takes_answer, "tool": self._takes_results}
        for index, source in enumerate(sources):
            if type(source) is not Message:
                if is_new(source.content):
                    return
                continue
            try:
                body = source.body
                # This decoder refuses what would have to be cleaned, so nothing it returns needs cleaning.
                value = None if body.form is None else decode(source.raw or b"")
            except _UNREADABLE:
                return
            if body.status != "complete":
                return
            if (body.usage is not None or body.metadata is not None) and not self._knows(source, known):
                return
            if body.role == "system":
                if not self._hears(source):
                    return
                continue
            if body.form is None:
                seen = self._glance_at_ours(source, body)
            elif body.form == self._form and type(value) is dict:
                seen = judge(value, body.role, self._count)
            else:
                return
            if seen is None or (self._model is not None and self._differs(seen, body, value)):
                return
            takes = take.get(role := seen.role)
            answers = amid and role == "assistant" and not self._waiting and self._last not in ("", "assistant")
            if takes is None or not takes(seen):
                return
            seen.seq, seen.source = source.seq, source
            if role == "user":
                self._ends_before(seen, index)
            elif answers:
                self._answered_at = (index, seen.seq, len(steps), len(messages), len(system))
            steps.append(seen)
            if seen.message is not None:
                messages.append(seen.message)
            else:
                self._write(seen)

    def _knows(self, source: Message, known: LogFacts) -> bool:
        """Record pins and token counts; return False for a count on anything but an answer, which repair must judge."""
        known.watch(source, self._form)
        return source.body.usage is None or source.body.role == "assistant"

    def _hears(self, source: Message) -> bool:
        """Collect a system message separately, as ``read`` does; return False if it is not plain text."""
        notes = Notes()
        item = item_of(source, notes)
        if item is None or notes or not all(type(part) is Text for part in item.parts):
            return False
        if text := texts(item.parts):
            self._seen.system.append(text)
        return True

    # ------------------------------------------------------------------ one message by itself

    def _differs(self, seen: GlancedMessage, body: Body, value: Any) -> bool:
        """Whether an answer contains what the requested model cannot read, or lacks what it requires."""
        if seen.role != "assistant":
            return False
        if (seen.tied and self._blind) or (seen.bare and self._signs):
            return True
        # In an answer of many items only the last names the model, which then applies to those before it.
        name = body.model or (word(value.get("model")) if value is not None else "")
        return (seen.tied or self._apart) and self._is_strange(name)

    def _glance_at_ours(self, source: Message, body: Body) -> GlancedMessage | None:
        text, role = body.content, body.role
        more = body.tool_calls or body.tool_results or body.attachments
        if type(text) is str and not more and role in ("user", "assistant"):  # the common case
            if not text or (self._rules.refuses_blank and text.isspace()) or clean(text) is not text:
                return None
            return GlancedMessage(role, MESSAGE + self._count(text), self._speaks.plain(role, text), True)
        notes = Notes()
        item = item_of(source, notes)
        return None if item is None or notes else of_item(item, self._count, self._rules.refuses_blank)

    # ------------------------------------------------------------------ where it stands

    def _takes_request(self, seen: GlancedMessage) -> bool:
        if self._waiting or (self._alternates and self._last == "user") or (self._apart and not self._follows(seen)):
            return False
        self._last = "user"
        return True

    def _ends_amid(self) -> None:
        """End the beginning before the last answer to tool results."""
        found = self._seen
        found.count, found.seq, *kept = self._answered_at
        behind = found.steps[kept[0] :]
        own = {self._rules.sent_id(call) for step in behind for call in step.calls}
        found.ids |= self._fresh - own - {f"item {step.id}" for step in behind}
        behind[0].place, self._kept = kept[1], (kept[0], kept[1], kept[2])

    def _ends_before(self, seen: GlancedMessage, index: int) -> None:
        """End the beginning before a request, for now: the request and its id are not part of it."""
        found, own = self._seen, {f"item {seen.id}"} if seen.id is not None else set()
        found.ids |= self._fresh - own
        self._fresh = own
        self._kept = (len(found.steps), len(found.messages), len(found.system))
        found.count, found.seq, seen.is_request, seen.place = index, seen.seq, True, len(found.messages)

    def _takes_answer(self, seen: GlancedMessage) -> bool:
        if self._apart:
            if (self._waiting and seen.speaks) or not self._follows(seen):
                return False
        elif self._waiting or self._last == "assistant" or (self._alternates and not self._last):
            return False
        for call in seen.calls:
            if not self._takes_call(call):
                return False
        self._last = "assistant"
        return True

    def _follows(self, seen: GlancedMessage) -> bool:
        """Whether an item may follow here and its id is not used by another item; call ids are separate."""
        if self._leads and (seen.role != "assistant" or (self._leads == "id" and not seen.id)):
            return False
        self._leads = seen.leads
        if seen.id is None:
            return True
        name = f"item {seen.id}"
        if name in self._fresh or name in self._seen.ids:
            return False
        self._fresh.add(name)
        return True

    def _takes_call(self, call: Call) -> bool:
        rules, sent, name = self._rules, self._rules.sent_id(call), call.name
        if call.id in self._waiting or type(call.arguments) is not dict:
            return False
        if name not in self._names:
            if not rules.name.fullmatch(name):
                return False
            self._names.add(name)
        if sent is not None:
            if sent in self._fresh or sent in self._seen.ids or len(sent) > rules.most or not rules.id.fullmatch(sent):
                return False
            self._fresh.add(sent)
        self._waiting[call.id] = call, sent
        return True

    def _takes_results(self, seen: GlancedMessage) -> bool:
        if self._apart and not self._follows(seen):
            return False
        tied: list[Part] = []
        for answer in seen.answers:
            call = self._answered(answer)
            if call is None:
                return False
            if answer.result is not None:
                tied.append(replace(answer.result, to=call, name=call.name))
        if not self._waiting and not self._rules.unique_ids:
            self._fresh.clear()  # this provider needs unique ids only among calls open at the same time
        self._last = "user" if self._alternates else "tool"
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
            id = first
        call, sent = waiting.pop(id, _NOBODY)
        if call is None or answer.result is not None:
            return call
        return call if sent == answer.id and answer.name in (None, call.name) else None

    def _write(self, seen: GlancedMessage) -> None:
        """Write a message in our own form; results of one step become one message where roles must alternate."""
        item, before = seen.item, self._joining
        if item is None:
            return
        if before is not None:
            item, seen.joined = replace(before, parts=(*before.parts, *item.parts)), True
        self._joining = item if self._alternates and seen.role == "tool" and self._waiting else None
        if self._joining is None:
            self._seen.messages += self._speaks.write([item], self._model)
        seen.item = None  # it is tied to calls of this pass; whoever needs an item reads the source again


def _stranger(model: str | None) -> Callable[[str], bool]:
    """Return a cached function that says whether a model is known to be another one: few models, many messages."""

    @cache
    def is_strange(name: str) -> bool:
        return is_other(name, model)

    return is_strange
