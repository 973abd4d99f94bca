"""The beginning of a log that needs no repair, found in one pass before anything is read: long histories cost little.

It is told conservatively: what is not plainly right is left to reading and repair, together with everything behind
it. What follows begins with a request, where no call is open, so that it is repaired as if all were there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import msgspec
from msgspec.structs import replace

from ..errors import Corrupt
from ..model.entry import Entry
from ..model.forms.given import word
from ..model.message import Body, Message
from .budget import Known
from .glances import GLANCES, Answer, Glance, of_item
from .models import is_other
from .normal import Call, Item, Notes, Part, Text, clean, texts
from .providers import Provider
from .read import is_new, item_of
from .steps import Step
from .tokens import MESSAGE, Count

Source = Message | Entry


class Beginning:
    """The steps and messages of a beginning, what the system said in it, and the ids that are used up there."""

    def __init__(self) -> None:
        self.steps, self.messages, self.system = list[Step](), list[dict[str, object]](), list[str]()
        self.ids = set[str]()
        self.count, self.seq = 0, 0
        """How many sources it takes, and the seq of the request behind it."""

    def tokens(self, first: int) -> int:
        """Give the tokens of its steps from one on, as they are sent."""
        return sum(step.tokens - MESSAGE * step.joined for step in self.steps[first:])

    def from_step(self, first: int) -> list[dict[str, object]]:
        """Give its messages from a request on."""
        return self.messages[self.steps[first].place :] if first < len(self.steps) else []


def find_beginning(
    sources: Sequence[Source], speaks: Provider, model: str | None, count: Count, known: Known
) -> Beginning:
    """Find the beginning that is right for a provider and a model; note what is pinned and counted in it."""
    look = _Look(speaks, model, count)
    for index, source in enumerate(sources):
        if not look.takes(source, index, known):
            break
    return look.found()


class _Look:
    """A look along the log: which calls wait for results, who spoke last, what has to follow."""

    def __init__(self, speaks: Provider, model: str | None, count: Count) -> None:
        self._speaks, self._model, self._count = speaks, model, count
        self._rules = rules = speaks.RULES
        self._judge, self._is_strange = GLANCES[rules.form], _stranger(model)
        self._apart = not rules.alternates and not rules.per_message  # one answer may be many items
        self._blind = model is not None and rules.blind(model)
        self._signs = model is not None and rules.signs(model)
        self._seen, self._names = Beginning(), set[str]()
        self._kept = (0, 0, 0)  # steps, messages and system messages before the last request
        self._fresh = set[str]()  # ids since then
        self._waiting = dict[str, tuple[Call, str | None]]()
        self._joining: Item | None = None
        self._last = self._leads = ""

    def found(self) -> Beginning:
        """Give what lies before the last request."""
        found, (steps, messages, system) = self._seen, self._kept
        del found.steps[steps:], found.messages[messages:], found.system[system:]
        return found

    def takes(self, source: Source, index: int, known: Known) -> bool:
        """Take a message if it is right where it stands; a tool's start that says nothing new is nothing."""
        if isinstance(source, Entry):
            return not is_new(source.content)
        try:
            body = source.body
        except Corrupt:
            return False
        if source.data is None or body.status != "complete":
            return False
        if body.usage is not None or body.metadata is not None:
            known.watch(source, self._rules.form)
            if body.usage is not None and body.role != "assistant":
                return False
        if body.role == "system":
            return self._hears(source)
        seen = self._glance(source, body)
        if seen is None:
            return False
        if seen.role == "user":
            return self._takes_request(seen, source, index)
        return self._takes_results(seen, source) if seen.role == "tool" else self._takes_answer(seen, source)

    def _hears(self, source: Message) -> bool:
        """Keep what the system said apart, as reading does."""
        notes = Notes()
        item = item_of(source, notes)
        if item is None or notes or not all(type(part) is Text for part in item.parts):
            return False
        if text := texts(item.parts):
            self._seen.system.append(text)
        return True

    # ------------------------------------------------------------------ one message by itself

    def _glance(self, source: Message, body: Body) -> Glance | None:
        if body.form is None:
            return self._glance_at_ours(source, body)
        if body.form != self._rules.form or source.raw is None:
            return None
        try:
            value = msgspec.json.decode(source.raw)  # what this reads holds nothing that would have to be cleaned
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        seen = self._judge(value, body.role, self._count) if type(value) is dict else None
        if self._model is None or seen is None or seen.role != "assistant":
            return seen
        # Of an answer in many items only the last one names the model, so that one speaks for those before it.
        other = (seen.tied or self._apart) and self._is_strange(body.model or word(value.get("model")))
        return None if other or (seen.tied and self._blind) or (seen.bare and self._signs) else seen

    def _glance_at_ours(self, source: Message, body: Body) -> Glance | None:
        if self._apart and self._model is not None and self._is_strange(body.model or ""):
            return None
        text, more = body.content, body.tool_calls or body.tool_results or body.attachments
        if type(text) is str and not more and body.role in ("user", "assistant"):  # what most are
            if not text or (self._rules.refuses_blank and text.isspace()) or clean(text) is not text:
                return None
            return Glance(body.role, MESSAGE + self._count(text), self._speaks.plain(body.role, text), True)
        notes = Notes()
        item = item_of(source, notes)
        return None if item is None or notes else of_item(item, self._count, self._rules.refuses_blank)

    # ------------------------------------------------------------------ where it stands

    def _takes_request(self, seen: Glance, source: Message, index: int) -> bool:
        found = self._seen
        if self._waiting or self._leads or (self._last == "user" and self._rules.alternates):
            return False
        if not self._takes_id(seen):
            return False
        found.ids |= self._fresh
        self._fresh = set()
        self._kept = (len(found.steps), len(found.messages), len(found.system))
        found.count, found.seq = index, source.seq
        self._last = "user"
        return self._add(seen, source)

    def _takes_answer(self, seen: Glance, source: Message) -> bool:
        rules = self._rules
        if not self._apart and (self._waiting or self._last == "assistant"):
            return False
        if (self._waiting and seen.speaks) or (rules.alternates and not self._last) or not self._takes_id(seen):
            return False
        if self._leads == "id" and not seen.id:
            return False
        for call in seen.calls:
            if not self._takes_call(call):
                return False
        self._last, self._leads = "assistant", seen.leads
        return self._add(seen, source)

    def _takes_id(self, seen: Glance) -> bool:
        """Take the id of an item if no other has it; ids of calls may be the same as ids of items."""
        if seen.id is None:
            return True
        name = f"item {seen.id}"
        if name in self._fresh or name in self._seen.ids:
            return False
        self._fresh.add(name)
        return True

    def _takes_call(self, call: Call) -> bool:
        rules, sent, name = self._rules, self._rules.sent_id(call), call.name
        if call.id in self._waiting or not isinstance(call.arguments, dict):
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

    def _takes_results(self, seen: Glance, source: Message) -> bool:
        rules, tied = self._rules, list[Part]()
        if self._leads or not self._takes_id(seen):
            return False
        for answer in seen.answers:
            call = self._answered(answer)
            if call is None:
                return False
            if answer.result is not None:
                tied.append(replace(answer.result, to=call, name=call.name))
        if not rules.unique_ids and not self._waiting:
            self._fresh.clear()  # ids must differ only among calls that are open together
        self._last = "user" if rules.alternates else "tool"
        if seen.item is None:
            # Stored messages that would have to be made one are left to the repair.
            is_alone = not rules.alternates or (not self._waiting and self._joining is None)
            return is_alone and self._add(seen, source)
        return self._writes(seen, replace(seen.item, parts=tuple(tied)), source)

    def _answered(self, answer: Answer) -> Call | None:
        """Give the call that waits for a result, if the result is right as it is; without an id it is the next one."""
        waiting = self._waiting
        first = next(iter(waiting), None)
        id = answer.id if answer.id is not None else first
        if id is None or id not in waiting or (self._rules.ordered and id != first):
            return None
        call, sent = waiting[id]
        if answer.result is None and (sent != answer.id or answer.name not in (None, call.name)):
            return None
        if answer.id is None and answer.name in waiting:
            return None
        del waiting[id]
        return call

    def _writes(self, seen: Glance, item: Item, source: Message) -> bool:
        """Write results in our own form, all of a step as one message where roles take turns."""
        before = self._joining
        whole = item if before is None else replace(before, parts=(*before.parts, *item.parts))
        self._joining = whole if self._rules.alternates and self._waiting else None
        self._add_step(seen, source, joined=before is not None)
        if self._joining is None:
            self._seen.messages += self._speaks.write([whole], self._model)
        return True

    def _add(self, seen: Glance, source: Message) -> bool:
        self._add_step(seen, source)
        if seen.message is not None:
            self._seen.messages.append(seen.message)
        elif seen.item is not None:
            self._seen.messages += self._speaks.write([seen.item], self._model)
        return True

    def _add_step(self, seen: Glance, source: Message, joined: bool = False) -> None:
        found, calls, results = self._seen, len(seen.calls), len(seen.answers)
        is_request, place = seen.role == "user", len(found.messages)
        step = Step(source.seq, seen.tokens, calls, results, is_request, seen.longest, None, source, place, joined)
        found.steps.append(step)


def _stranger(model: str | None) -> Callable[[str], bool]:
    """Give a function that says whether a model is known to be another one; there are few, and many messages."""

    @cache
    def is_strange(name: str) -> bool:
        return is_other(name, model)

    return is_strange
