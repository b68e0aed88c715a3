"""A counter whose counts add up less simply than words do: joints, escapes and images cost what they do in life."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.model.conversation import Message, text_of
from proxy.model.limits import Margin, Quality
from proxy.model.ports import Meter
from proxy.model.structs import replace

CHARS = 3  # characters of a token; two texts joined may cost one token more than each of them alone
IMAGE = 85


@dataclass(frozen=True, slots=True)
class CharMeter:
    """Counts characters by threes, rounded down. Results of parallel calls cost what they cost as escaped JSON."""

    quality: Quality = Quality.ESTIMATED
    margin: Margin = field(default_factory=lambda: Margin(0, 0.0))
    fixed: Mapping[str, int] = field(default_factory=lambda: {"base": 2, "tools": 5})
    ratio: float = 1.0

    def text(self, text: str) -> int:
        return math.ceil(self.ratio * (len(text) // CHARS))

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        most = CHARS * int(tokens / self.ratio) + CHARS - 1
        if self.text(text[:most]) > tokens:
            most -= CHARS
        return text[max(0, len(text) - most) :] if tail else text[:most]

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        fields = [m.fields() for m in messages]
        results = [f for f in fields if f.get("role") == "tool"]
        return tuple(self._cost(f, escaped=len(results) > 1 and f in results) for f in fields)

    def _cost(self, message: dict[str, Any], escaped: bool) -> int:
        content = message.get("content")
        text = text_of(content)
        images = sum(p.get("type") == "image_url" for p in content) if isinstance(content, list) else 0
        calls = [c["function"]["arguments"] for c in message.get("tool_calls") or []]
        plain = 5 + IMAGE * images + sum(7 + len(arguments) // CHARS for arguments in calls)
        return math.ceil(self.ratio * plain) + self.text(json.dumps(text) if escaped else text)

    def scaled(self, ratio: float) -> Meter:
        return replace(self, ratio=self.ratio * ratio)

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        return None
