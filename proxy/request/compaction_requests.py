"""Requests that ask for a summary of their conversation: which they are, and the ladder that they get."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.config.compactions import LADDER
from proxy.config.rules import Rules
from proxy.fit.compactions import PROVIDERS, Compaction, by_provider, marked, row_of
from proxy.model.conversation import Prompt
from proxy.model.plan import Ladder
from proxy.request.stages import Received, Scanned
from proxy.request.work import HEAVY_BYTES, Pool

# `Ladder.on_unfit` of such a request: what is left is sent, even if our count says that it is too long.
SEND = "send"
# Steps that must not act on such a request: they write texts of our own, or move it to a model that did not encrypt it.
NOT_WHEN_COMPACTING = frozenset({"summarise_history", "recall", "switch_model"})


@dataclass(frozen=True, slots=True)
class CompactionRequests:
    """Recognises such requests, in a thread of `pool` if they are long."""

    rules: Rules
    pool: Pool

    def is_providers(self, received: Received, scanned: Scanned) -> bool:
        """Whether the provider itself is to compact the conversation."""
        return scanned.scan.compacts or received.path in received.api.compact_paths

    def ladder(self, ladder: Ladder, requested: str | None) -> Ladder:
        """The ladder of such a request: one of its own, unless the client named one, or its ladder cuts nothing. It
        must always get through, for without it the conversation ends."""
        chosen = ladder if requested or not ladder.steps else self.rules.ladders.get(LADDER, ladder)
        steps = tuple(ladder_step for ladder_step in chosen.steps if ladder_step.step not in NOT_WHEN_COMPACTING)
        return chosen.with_steps(steps, SEND)

    async def found(self, received: Received, scanned: Scanned) -> Scanned:
        """A request that may be cut, with what follows if it asks for a summary in one of the ways of the rows; else
        the same. Raises `NotUnderstood`."""
        ladder, body = scanned.ladder, scanned.plain
        if scanned.compaction or ladder is None or not ladder.steps:
            return scanned
        rows = tuple(row for row in self.rules.compactions if _may_ask(row, received.api.name, body))
        if not rows:
            return scanned
        parse = partial(received.api.request.parse, body, scanned.controls.pins)
        row = row_of(await self.pool.run(len(body) > HEAVY_BYTES, parse), rows)
        if row is None:
            return scanned
        own = self.ladder(ladder, scanned.controls.ladder)
        return replace(scanned, ladder=own, lore=(), compaction=row.name, transcript=row.transcript)


def _may_ask(row: Compaction, api: str, body: bytes) -> bool:
    """Whether a body has the words of a row anywhere: a search of bytes, before anything is parsed."""
    if row.apis and api not in row.apis:
        return False
    return any(msgspec.json.encode(text)[1:-1] in body for text in row.begins)


def as_asked(prompt: Prompt, scanned: Scanned) -> Prompt:
    """The prompt as it is to be planned."""
    if not scanned.compaction:
        return prompt
    return by_provider(prompt) if scanned.compaction == PROVIDERS else marked(prompt, scanned.transcript)
