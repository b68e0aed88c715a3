"""What is kept of a request for the page, taken before its content is released."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.model.api import Api
from proxy.model.conversation import TEXTS, Message, PartKind
from proxy.model.plan import Plan
from proxy.observe.recent import Shown
from proxy.wire.breakdown import pack, shown_role
from proxy.wire.rows import Row, rows
from proxy.wire.scan import NotUnderstood
from proxy.wire.segments import segments

MAX_TEXT = 100_000  # characters of one message that the page shows
MAX_MESSAGES = 2_000
SHOWN_KINDS = TEXTS | {PartKind.CALL, PartKind.REASONING, PartKind.INPUT}


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept: what became of the messages of a request that was planned, and if `texts` the texts of all."""

    texts: bool = False

    def of_plan(self, plan: Plan) -> Shown:
        """What is kept of a plan. No draft is kept: with the messages of one, all of the body would stay."""
        packed = pack(plan)
        if not self.texts:
            return Shown(packed)
        return Shown(
            packed,
            PlannedTexts(tuple(plan.before.messages), tuple(plan.draft.messages), tuple(rows(plan, lines=False))),
        )

    def of_body(self, body: bytes, api: Api) -> Shown:
        """What is kept of a request that was not planned, if texts are kept."""
        return Shown(b"", BodyTexts(api, body))


@dataclass(frozen=True, slots=True)
class PlannedTexts:
    """The messages of a plan, as received and as sent."""

    received: tuple[Message, ...]
    sent: tuple[Message, ...]
    rows: tuple[Row, ...]

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
                found.append(_shown(row, "", _text(next(own, None))))
            else:
                found.append(_shown(row, _text(before.get(row.index)), _text(after.get(row.index))))
        return found


@dataclass(frozen=True, slots=True)
class BodyTexts:
    """The body of a request that was sent as it came."""

    api: Api
    body: bytes

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
        return [_kept(m) for m in messages[:MAX_MESSAGES]]


def _kept(m: Message) -> dict[str, Any]:
    text = _text(m)
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


def _text(message: Message | None) -> str:
    """All texts of a message, those of results, calls and reasoning included."""
    return "" if message is None else "\n".join(_texts(message))


def _texts(message: Message) -> Iterable[str]:
    for part in message.parts():
        if part.kind is PartKind.CALL:
            yield f"{part.name}({part.text})"
        elif part.kind in SHOWN_KINDS:
            yield part.text
