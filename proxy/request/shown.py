"""What is kept of a request for the page, taken before its content is released."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_64

from proxy.model.api import Api
from proxy.model.conversation import TEXTS, Kind, Message, PartKind
from proxy.model.plan import Plan
from proxy.observe.recent import Shown
from proxy.observe.recording.recorded_bodies import Headers
from proxy.request.credentials import credentials_of
from proxy.upstreams.internal_client import caller_of
from proxy.wire.breakdown import pack, shown_role
from proxy.wire.key_texts import HIDDEN
from proxy.wire.keys import Keys, as_keys, hidden_text
from proxy.wire.rows import Row, rows
from proxy.wire.scan import NotUnderstood
from proxy.wire.segments import segments

MAX_TEXT = 100_000  # characters of one message that the page shows
MAX_MESSAGES = 2_000
OPENING = 200  # characters of instructions: behind these there may be the time, which changes from turn to turn
SEED = secrets.randbits(64)  # of the names of conversations; workers are forked, so it is the same in all
SHOWN_KINDS = TEXTS | {PartKind.CALL, PartKind.REASONING, PartKind.INPUT}


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept: what became of the messages of a request that was planned, and if `texts` the texts of all."""

    texts: bool = False

    def of_plan(self, plan: Plan, headers: Headers = ()) -> Shown:
        """What is kept of a plan. No draft is kept: with the messages of one, all of the body would stay. `headers`:
        of the request; no text shows what is a key in them."""
        packed, conversation = pack(plan), conversation_of(plan, headers)
        if not self.texts:
            return Shown(packed, None, conversation)
        texts = PlannedTexts(
            tuple(plan.before.messages),
            tuple(plan.draft.messages),
            tuple(rows(plan, lines=False)),
            as_keys(credentials_of(headers)),
        )
        return Shown(packed, texts, conversation)

    def of_body(self, body: bytes, api: Api, headers: Headers = ()) -> Shown:
        """What is kept of a request that was not planned, if texts are kept."""
        return Shown(b"", BodyTexts(api, body, as_keys(credentials_of(headers))))


def conversation_of(plan: Plan, headers: Headers) -> str:
    """A name for the conversation of a request, the same for all of its turns and in all workers; empty without a user
    message. It is a hash of who sends it, to which model, how its instructions begin, and what its first user message
    says, under a key that is made at the start and kept nowhere. It tells no content, and decides nothing."""
    if plan.before.texts:
        return ""
    hashed = xxh3_64(b"%b\0%b\0" % (caller_of(headers), plan.before.model.encode("utf-8", "replace")), seed=SEED)
    for message in plan.before.messages:
        if message.kind is Kind.INSTRUCTION:
            hashed.update(message.text()[:OPENING].encode("utf-8", "replace"))
        elif message.kind is Kind.USER:
            hashed.update(b"\0" + message.own_text().encode("utf-8", "replace"))
            return hashed.hexdigest()
    return ""


@dataclass(frozen=True, slots=True)
class PlannedTexts:
    """The messages of a plan, as received and as sent. `keys`: the client's own."""

    received: tuple[Message, ...]
    sent: tuple[Message, ...]
    rows: tuple[Row, ...]
    keys: Keys = ()

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory, about."""
        return sum(len(m.raw) + 200 for m in (*self.received, *self.sent))

    def shown(self) -> list[dict[str, Any]]:
        """The texts of each message, with what was cut and what was added marked."""
        before = {m.index: m for m in self.received}
        after = {m.index: m for m in self.sent if m.index >= 0}
        own = iter([m for m in self.sent if m.index < 0])
        found = []
        for row in self.rows[:MAX_MESSAGES]:
            if row.index is None:
                found.append(_shown(row, "", _text(next(own, None), self.keys)))
            else:
                texts = _both_texts(before.get(row.index), after.get(row.index), self.keys)
                found.append(_shown(row, *texts))
        return found


@dataclass(frozen=True, slots=True)
class BodyTexts:
    """The body of a request that was sent as it came. `keys`: the client's own."""

    api: Api
    body: bytes
    keys: Keys = ()

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory."""
        return len(self.body)

    def shown(self) -> list[dict[str, Any]]:
        """The texts of each message. Empty if the body is not understood."""
        try:
            messages = self.api.request.parse(self.body).messages
        except NotUnderstood:
            return []
        return [_kept(m, self.keys) for m in messages[:MAX_MESSAGES]]


def _kept(m: Message, keys: Keys) -> dict[str, Any]:
    text = _text(m, keys)
    return _shown(Row(m.index, m.role, "kept", "", "", 0, 0), text, text)


def _shown(row: Row, before: str, after: str) -> dict[str, Any]:
    return {
        "index": row.index,
        "role": shown_role(row.role),
        "state": row.state,
        "step": row.step,
        "segments": segments(before[:MAX_TEXT], after[:MAX_TEXT]),
        "truncated": max(len(before), len(after)) > MAX_TEXT,
    }


def _both_texts(before: Message | None, after: Message | None, keys: Keys) -> tuple[str, str]:
    """The texts of a message as received and as sent, without keys. A cut may leave a key without its name: of a text
    that had keys only the parts are shown that it has without them, too."""
    if before is None or after is None:
        return _text(before, keys), _text(after, keys)
    received, sent = "\n".join(_texts(before, str)), "\n".join(_texts(after, str))
    shown = _text(before, keys)
    if shown == received or sent == received:
        return shown, shown if sent == received else _text(after, keys)
    kept = [
        line if line in shown else HIDDEN if line in received else hidden_text(line, keys) for line in sent.splitlines()
    ]
    return shown, "\n".join(kept)


def _text(message: Message | None, keys: Keys) -> str:
    """All texts of a message, those of results, calls and reasoning included, without keys."""
    return "" if message is None else "\n".join(_texts(message, lambda text: hidden_text(text, keys)))


def _texts(message: Message, shown: Callable[[str], str]) -> Iterable[str]:
    for part in message.parts():
        if part.kind is PartKind.CALL:
            yield f"{part.name}({shown(part.text)})"
        elif part.kind in SHOWN_KINDS:
            yield shown(part.text)
