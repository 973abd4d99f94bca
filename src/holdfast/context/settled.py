"""The beginning of a conversation that needs no repair, found in one pass: a long valid history costs little.

It is told conservatively: what is not plainly right is left to the repair, together with everything behind it. What
follows begins with a request, where no call is open, so that the two parts are repaired as if they were one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from .models import is_other
from .normal import Call, Item, Part, Result, Text
from .rules import Rules


class Settled:
    """The items at the beginning that are right; results in our own form are tied to their calls."""

    def __init__(self, items: Sequence[Item], rules: Rules, model: str | None) -> None:
        self._rules, self._model = rules, model
        self._found, self._ids = list[Item](), set[str]()
        self._waiting = dict[str, Call]()
        self._last = ""
        self._joining: Item | None = None
        self.items, self.count = list[Item](), 0
        self._kept = 0
        for index, item in enumerate(items):
            if not self._takes(item, index):
                break
        self.items = self._found[: self._kept]
        if self.count and rules.unique_ids and self._repeats(items[self.count :]):
            self.items, self.count = [], 0

    def _repeats(self, rest: Sequence[Item]) -> bool:
        """Say whether a call behind the settled part has an id that is used in it."""
        used, later = ({self._rules.sent_id(call) for call in _calls(each)} for each in (self.items, rest))
        return not used.isdisjoint(later - {None})

    def _takes(self, item: Item, index: int) -> bool:
        """Take an item if it is right where it stands."""
        if item.half or (item.form is not None and (item.form != self._rules.form or item.raw is None)):
            return False
        match item.role:
            case "user":
                return self._takes_request(item, index)
            case "assistant":
                return self._takes_answer(item)
            case "tool":
                return self._takes_results(item)
        return False

    def _takes_request(self, item: Item, index: int) -> bool:
        if self._waiting or (self._rules.alternates and self._last == "user"):
            return False
        if not item.parts or not all(self._is_text(part, "user") for part in item.parts):
            return False
        self._kept, self.count = len(self._found), index
        self._found.append(item)
        self._last = "user"
        return True

    def _is_text(self, part: Part, role: str) -> bool:
        """Say whether a part is text that is sent as it is."""
        if type(part) is not Text:
            return False
        said = part.text.strip() if self._rules.refuses_blank else part.text
        return bool(said) and (part.raw is None or (part.form == self._rules.form and self._rules.holds(part, role)))

    def _takes_answer(self, item: Item) -> bool:
        rules, step = self._rules, set[str]()
        apart = not rules.alternates and not rules.per_message
        if self._last == "assistant" and not apart:
            return False
        if self._waiting and not (apart and all(type(part) is Call for part in item.parts)):
            return False
        if not item.parts or self._is_strange(item):
            return False
        for part in item.parts:
            if type(part) is Call:
                if not self._takes_call(part, step):
                    return False
            elif type(part) is Text:
                if step or not self._is_text(part, "assistant"):
                    return False
            elif part.raw is None or part.form != rules.form or not rules.holds(part, "assistant"):
                return False
        self._found.append(item)
        self._last = "assistant"
        return True

    def _is_strange(self, item: Item) -> bool:
        """Say whether the model that is asked cannot read something in an answer."""
        rules, model = self._rules, self._model
        if model is None or item.form is None:
            return False
        strange = item.model is None or is_other(item.model, model) or rules.blind(model)
        return strange and rules.forgets(item) is not item

    def _takes_call(self, call: Call, step: set[str]) -> bool:
        rules, sent = self._rules, self._rules.sent_id(call)
        own = call.raw is not None and call.form == rules.form
        if (call.raw is not None and not own) or call.id in self._waiting or not rules.name.fullmatch(call.name):
            return False
        if not isinstance(call.arguments, dict) and not (own and rules.free(call)):
            return False
        if sent is not None:
            if not rules.id.fullmatch(sent) or len(sent) > rules.most or sent in step or sent in self._ids:
                return False
            step.add(sent)
            self._ids.add(sent)
        self._waiting[call.id] = call
        return True

    def _takes_results(self, item: Item) -> bool:
        rules = self._rules
        tied = []
        for part in item.parts:
            if type(part) is not Result or (result := self._tied(part, item)) is None:
                return False
            tied.append(result)
        if not rules.unique_ids and not self._waiting:
            self._ids.clear()  # ids must differ only among calls that are open together
        if rules.alternates and (self._waiting or self._joining is not None):
            return self._joins(item, tied)
        self._found.append(item if item.raw is not None else replace(item, parts=tuple(tied)))
        self._last = "user" if rules.alternates else "tool"
        return bool(tied)

    def _joins(self, item: Item, tied: list[Result]) -> bool:
        """Make one message of all results of a step, where that is demanded; stored ones are left to the repair."""
        if item.raw is not None or not tied:
            return False
        before = () if self._joining is None else self._joining.parts
        joined = replace(self._joining or item, parts=(*before, *tied))
        self._joining = joined if self._waiting else None
        if self._joining is None:
            self._found.append(joined)
            self._last = "user"
        return True

    def _tied(self, result: Result, item: Item) -> Result | None:
        """Tie a result to the call that waits for it, if it is right as it is."""
        call = self._waiting.get(result.call_id)
        if call is None or (self._rules.ordered and call is not next(iter(self._waiting.values()))):
            return None
        if not all(self._is_text(each, "tool" if result.success else "failed") for each in result.parts):
            return None
        own, tied = result.raw is not None, replace(result, to=call)
        if own and (item.raw is None or not self._rules.agrees(tied)):
            return None
        del self._waiting[result.call_id]
        return tied if own else replace(tied, name=call.name)


def _calls(items: Sequence[Item]) -> Iterator[Call]:
    return (part for item in items for part in item.parts if type(part) is Call)
