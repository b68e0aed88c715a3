"""What the operator's rule says of the requests of a caller (callers.toml). It decides nothing."""

from __future__ import annotations

import re

import msgspec

from proxy.model.budget import Budget
from proxy.model.conversation import Message, Prompt
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported

PINNED_SHARE = 4  # what a rule pins takes at most a quarter of the window: the rest must be able to fit
BYTES_PER_TOKEN = 4  # of a message's JSON, about


class PinRule(msgspec.Struct, frozen=True):
    """Messages that stay whole: those of these `roles`, those of speakers or tools with these `names`, and those whose
    text contains one of these `texts`, in any case."""

    roles: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()

    def pinned(self, prompt: Prompt, tokens: int) -> frozenset[int]:
        """The indices of the messages of a prompt that it pins, the oldest first as far as they take no more than a
        quarter of a window of so many `tokens`: what a turn pins, later ones pin too."""
        left, found = tokens * BYTES_PER_TOKEN // PINNED_SHARE, []
        names = dict[str, str]()  # of tools, by the id of the call
        for message in prompt.messages:
            names.update((call.id, call.name) for call in message.calls)
            if message.index >= 0 and self._matches(message, names):
                left -= len(message.raw)
                if left < 0:
                    break
                found.append(message.index)
        return frozenset(found)

    def _matches(self, message: Message, names: dict[str, str]) -> bool:
        if message.role in self.roles or message.name in self.names:
            return True
        if self.names and any(names.get(answered) in self.names for answered in message.answers):
            return True
        if not self.texts:
            return False
        text = message.text().casefold()
        return any(wanted in text for wanted in self.texts)


class CallerRule(msgspec.Struct, frozen=True):
    """A row of callers.toml without what it matches; None or empty: the row says nothing of it. `number`: of the row,
    from 1. `window` and `effective` are in tokens. `models`: a pattern for the models that the caller may use, in lower
    case. `anybody`: it matches callers that it does not name, each of which has a budget of its own."""

    number: int
    name: str
    window: int | None = None
    ladder: str | None = None
    mode: Mode | None = None
    upstream: str | None = None
    models: re.Pattern[str] | None = None
    pin: PinRule | None = None
    on_full: OnFull | None = None
    usage: Reported | None = None
    effective: int | None = None
    budget: Budget | None = None
    anybody: bool = False

    def allows(self, model: str) -> bool:
        """Whether the caller may use a model; of one that is not known only if it may use all."""
        return self.models is None or (bool(model) and self.models.match(model.lower()) is not None)
