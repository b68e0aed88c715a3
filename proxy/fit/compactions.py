"""Requests that ask for a summary of their own conversation: how they are recognised, and what of them must stay.

A client that compacts asks with a prompt of its own, which no user typed. It is no question: nothing is ranked by it,
and it stays whole. Only where such a prompt can stand is looked at, and only how it begins: quoted in a conversation or
in a result, it is a text like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from proxy.model.conversation import Kind, Message, PartKind, Prompt
from proxy.model.plan import Draft

PROVIDERS = "provider"  # the name of compactions by the provider, which the API itself defines
INSTRUCTIONS, MESSAGE = "instructions", "message"
SURE = 20  # characters of a phrase at least: a shorter one may begin any message
LOOKED_AT = 4_000  # characters of a text in which its row's words are looked for


class Compaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[compaction]]`: how a client asks for a summary.

    `where`: the prompt is the last text of the last message (`message`), or stands in the `instructions`. `begins`: it
    begins with one of these. `contains`: what its first 4,000 characters contain, too. `apis`: the names of the APIs in
    which the client asks; empty: all. `transcript`: the conversation is a text in the last message.
    """

    name: str
    begins: tuple[str, ...]
    where: str = MESSAGE
    contains: str = ""
    apis: tuple[str, ...] = ()
    transcript: bool = False

    def __post_init__(self) -> None:
        if not self.name.strip() or self.name == PROVIDERS:
            raise ValueError(f"name must not be empty, and not {PROVIDERS!r}")
        if self.where not in (MESSAGE, INSTRUCTIONS):
            raise ValueError(f"where must be {MESSAGE!r} or {INSTRUCTIONS!r}")
        if not self.begins or not all(len(text.strip()) >= SURE and text == text.strip() for text in self.begins):
            raise ValueError(f"begins must be texts of at least {SURE} characters, without white space around them")
        if not all(text.isascii() and text.isprintable() for text in (*self.begins, self.contains)):
            raise ValueError("begins and contains must be plain ASCII, in one line")

    def asks(self, prompt: Prompt) -> bool:
        """Whether a request asks for a summary in this way."""
        if self.apis and prompt.api not in self.apis:
            return False
        return any(self._is_prompt(text) for text in _texts(prompt.messages, self.where))

    def _is_prompt(self, text: str) -> bool:
        text = text[:LOOKED_AT].lstrip()
        return text.startswith(self.begins) and self.contains in text


def row_of(prompt: Prompt, rows: Iterable[Compaction]) -> Compaction | None:
    """The first row by which a request asks for a summary; None if it does not."""
    return next((row for row in rows if row.asks(prompt)), None)


def _texts(messages: Sequence[Message], where: str) -> Iterator[str]:
    """The texts that may be such a prompt."""
    if where == MESSAGE:
        last = messages[-1] if messages and messages[-1].kind is Kind.USER else None
        texts = [part.text for part in last.parts() if part.kind is PartKind.TEXT] if last is not None else []
        yield from texts[-1:]
        return
    for message in messages:
        if message.kind is not Kind.INSTRUCTION:
            return
        yield from (part.text for part in message.parts() if part.kind is PartKind.TEXT)


def marked(prompt: Prompt, transcript: bool = False) -> Prompt:
    """The prompt with its last message, which asks for the summary, as one that stays whole and asks no question.

    Of a `transcript` it is the conversation, too, and stays what it is. Results beside the prompt may be shortened.
    """
    last, form = prompt.messages[-1], replace(prompt.form, compaction=True)
    if transcript or last.kind is not Kind.USER:
        return replace(prompt, form=form)
    asking = replace(last, kind=Kind.RESULT if last.answers else Kind.OTHER)
    pins = prompt.pins | {last.index}
    return replace(prompt, messages=(*prompt.messages[:-1], asking), pins=pins, form=form)


def by_provider(prompt: Prompt) -> Prompt:
    """The prompt of a conversation that the provider is to compact: it goes out as it came until that is refused."""
    return replace(prompt, managed=True, form=replace(prompt.form, compaction=True))


def uncovered(before: Draft, after: Draft) -> str:
    """What a summary does not cover, in words and figures."""
    sent = {m.index: m.raw for m in after.messages}
    asked = [m for m in before.messages if m.index >= 0]
    gone = sum(m.index not in sent for m in asked)
    shorter = sum(m.index in sent and sent[m.index] != m.raw for m in asked)
    return (
        f"the summary does not cover all of the conversation: {gone:,} of {len(asked):,} messages are left out, "
        f"{shorter:,} shortened, {max(0, before.billed - after.billed):,} of {before.billed:,} tokens"
    )
