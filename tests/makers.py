"""Makes the values that tests speak in: messages, conversations, a meter whose counts one can do in one's head."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.apis.openai_chat import request
from proxy.fit.plan import start
from proxy.model.conversation import TEXTS, Message, Part, PartKind, Prompt
from proxy.model.limits import Margin, Quality, Window
from proxy.model.plan import Draft, Facts, Ladder, LadderStep
from proxy.model.ports import Medium, Meter
from proxy.model.structs import replace


@dataclass(frozen=True, slots=True)
class WordMeter:
    """Counts words: a message costs 4 and its words; calls cost 8 and the words of their arguments."""

    quality: Quality = Quality.EXACT
    margin: Margin = field(default_factory=lambda: Margin(0, 0.0))
    fixed: Mapping[str, int] = field(default_factory=lambda: {"base": 3})
    ratio: float = 1.0

    @property
    def key(self) -> str:
        return f"{type(self).__name__} {self.ratio!r}"

    def text(self, text: str) -> int:
        return round(self.ratio * len(text.split()))

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        words = text.split(" ")
        most = int(tokens / self.ratio)
        kept = (words[len(words) - most :] if most else []) if tail else words[:most]
        return " ".join(kept)

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(round(self.ratio * self._cost(m.parts())) for m in messages)

    def _cost(self, parts: Sequence[Part]) -> int:
        texts = [part.text for part in parts if part.kind in TEXTS]
        calls = [part.text for part in parts if part.kind is PartKind.CALL and part.editable]
        return 4 + sum(len(t.split()) for t in texts) + sum(8 + len(a.split()) for a in calls)

    def scaled(self, ratio: float) -> Meter:
        return replace(self, ratio=self.ratio * ratio)

    def counted(self, ratio: float, margin: Margin | None = None) -> Meter:
        return replace(self, ratio=self.ratio * ratio, margin=margin or self.margin, quality=Quality.CALIBRATED)

    def media(self, messages: Sequence[Message]) -> tuple[Medium, ...]:
        return ()

    def with_media(self, rate: float, allowance: int = 0) -> Meter:
        return self

    def with_fields(self, fields: Mapping[str, bytes]) -> Meter:
        """Tools cost a token for four characters of their compact JSON."""
        tools = sum(len(json.dumps(json.loads(raw), separators=(",", ":"))) // 4 for raw in fields.values())
        return replace(self, fixed={**self.fixed, "tools": tools})

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        return None


def words(n: int, stem: str = "w") -> str:
    """A text of n words, no two alike."""
    return " ".join(f"{stem}{i}" for i in range(n))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def tool_round(ident: str, result: str, name: str = "search", arguments: str = "{}") -> list[dict[str, Any]]:
    """A call and its result: two messages that belong together."""
    call = {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": ident, "content": result},
    ]


def body(messages: Sequence[dict[str, Any]], model: str = "gpt-4o", **fields: Any) -> bytes:
    """A request's JSON."""
    return json.dumps({"model": model, "messages": list(messages), **fields}).encode()


def prompt(messages: Sequence[dict[str, Any]], **fields: Any) -> Prompt:
    """The same, parsed."""
    return request.parse(body(messages, **fields))


def message(raw: bytes | Mapping[str, Any], index: int = 0, **facts: Any) -> Message:
    """One message of chat, parsed from its JSON."""
    data = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
    parsed = request.parse(b'{"model":"m","messages":[%b]}' % data).messages[0]
    return replace(parsed, raw=data, index=index, **facts)


def fields(message: Message) -> dict[str, Any]:
    """A message's JSON, decoded."""
    decoded: dict[str, Any] = json.loads(message.raw)
    return decoded


def facts(window: int, max_input: int | None = None, meter: Meter | None = None, **more: Any) -> Facts:
    return Facts(Window(window, max_input, source="test"), meter or WordMeter(), **more)


def ladder(*steps: LadderStep, **more: Any) -> Ladder:
    return Ladder("test", steps, **more)


def draft(messages: Sequence[dict[str, Any]], window: int, meter: Meter | None = None, **fields: Any) -> Draft:
    """What the client sent, counted in words, no rung tried yet."""
    return start(prompt(messages, **fields), ladder(), facts(window, meter=meter))


def contents(found: Draft) -> list[str]:
    """The texts of a draft's messages."""
    return [m.text() for m in found.messages]
