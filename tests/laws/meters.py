"""A counter whose counts add up less simply than words do: joints, escapes and images cost what they do in life."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.model.conversation import TEXTS, Message, Part, PartKind
from proxy.model.limits import Margin, Quality
from proxy.model.ports import Medium, Meter
from proxy.model.structs import replace
from proxy.tokens.encodings import encoding

CHARS = 3  # characters of a token; two texts joined may cost one token more than each of them alone
IMAGE = 85


@dataclass(frozen=True, slots=True)
class CharMeter:
    """Counts characters by threes, rounded down. Results of parallel calls cost what they cost as escaped JSON."""

    quality: Quality = Quality.ESTIMATED
    margin: Margin = field(default_factory=lambda: Margin(0, 0.0))
    fixed: Mapping[str, int] = field(default_factory=lambda: {"base": 2, "tools": 5})
    ratio: float = 1.0

    @property
    def key(self) -> str:
        return f"{type(self).__name__} {self.ratio!r}"

    def text(self, text: str) -> int:
        return math.ceil(self.ratio * (len(text) // CHARS))

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        most = CHARS * int(tokens / self.ratio) + CHARS - 1
        if self.text(text[:most]) > tokens:
            most -= CHARS
        return text[max(0, len(text) - most) :] if tail else text[:most]

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        parallel = sum(len(m.answers) for m in messages) > 1
        return tuple(self._cost(m.parts(), escaped=parallel and bool(m.answers)) for m in messages)

    def _cost(self, parts: Sequence[Part], escaped: bool) -> int:
        text = "".join(part.text for part in parts if part.kind in TEXTS)
        images = sum(part.kind is PartKind.MEDIA for part in parts)
        calls = [part.text for part in parts if part.kind is PartKind.CALL and part.editable]
        plain = 5 + IMAGE * images + sum(7 + len(arguments) // CHARS for arguments in calls)
        return math.ceil(self.ratio * plain) + self.text(json.dumps(text) if escaped else text)

    def scaled(self, ratio: float) -> Meter:
        return replace(self, ratio=self.ratio * ratio)

    def counted(self, ratio: float, margin: Margin | None = None) -> Meter:
        return replace(self, ratio=self.ratio * ratio, margin=margin or self.margin, quality=Quality.CALIBRATED)

    def media(self, messages: Sequence[Message]) -> tuple[Medium, ...]:
        return ()

    def with_media(self, rate: float, allowance: int = 0) -> Meter:
        return self

    def with_fields(self, fields: Mapping[str, bytes]) -> Meter:
        return self

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        return None


@dataclass(frozen=True, slots=True)
class ByteMeter(CharMeter):
    """Counts by a byte-level encoding: a message costs 4 and its texts, a call 8, its name and its arguments."""

    encoding: str = "o200k_base"

    @property
    def key(self) -> str:
        return f"bytes {self.encoding}"

    def text(self, text: str) -> int:
        return encoding(self.encoding).count(text)

    def _cost(self, parts: Sequence[Part], escaped: bool) -> int:
        texts = sum(self.text(part.text) for part in parts if part.kind in TEXTS)
        calls = [part for part in parts if part.kind is PartKind.CALL]
        return 4 + texts + sum(8 + self.text(part.name) + self.text(part.text) for part in calls)
