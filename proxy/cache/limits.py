"""What refusals proved of a model's limits for one caller: a small record of proofs; pure, it reads no clock.

Theory of operation
===================

A provider that refuses a request for its length tells something of its model: the window, a bound on the prompt, how it
counts, that roles must alternate. Believing it saves the next request a refused round trip. But an error message is
text: it quotes what clients send, and one model may have two windows for two keys. So what is learned is kept as
evidence, and is believed only as far as that goes.

Who. A record belongs to an upstream, a model and a caller (the hash of its credentials). What one caller's request was
refused for never changes what another caller gets. A new caller starts from the user's rows, the tables and the
upstream's own list; its first refusal costs it one round trip.

What. `fit.learning.proven` decides, before anything comes here: a refusal proves a limit only where the refused request
was over it by our own count, and figures that contradict our count prove nothing. Words and figures that the request
itself contains prove nothing either (`wire.echoes`). A row that the user wrote in windows.toml is never overridden.

Which proof. A refusal that names its figure proves `window`, `max_input` or `scale`; one that names none proves at most
that the window is smaller than what was refused: `supposed`, kept only for models that nobody knows, only for minutes,
and never worked out from a request that an earlier supposition had cut already: so suppositions do not add up.

An answer proves a bound on the prompt where the upstream read the same of several prompts that differ (`tokens.usage`):
it is kept, doubted and taken back like any other.

How long. Every proof ends (`LIFE`), and before that it is doubted. Once per probe interval (a minute) a request that it
would cut goes out as if nothing had been learned. If the upstream refuses it, it is healed within the same request,
and that refusal is a new proof. If the upstream answers it, the proof is taken back: where the answer has usage, only
if that agrees with our count (an upstream that cuts silently reports less), and where it has none, because an upstream
that is known to refuse would have refused. All proofs are doubted at once after the upstream could not be reached: it
may have been restarted with another window.

What rests on it. A plan that cuts; never an error of ours. What no plan fits goes out as it is (`planning`).

Between replicas. Of two words on one limit the later holds; a proof that was taken back stays as a word without a
value, so that an older one cannot come back. Replicas that run other versions read other names (`KIND`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Proof
from proxy.model.structs import replace

KIND = "limits:1"  # of the name under which a record is kept: another format is another name
# Seconds that a proof holds unless it is proven again. A named figure is doubted once a minute, so that its end only
# tidies up. What was only supposed lasts long enough that a conversation does not pay a refusal at every turn, and is
# over before anybody looks where it was a mistake (a gateway's bad minute, a bound of another kind).
LIFE: Mapping[str, float] = {
    "window": 21_600.0,
    "max_input": 21_600.0,
    "scale": 21_600.0,
    "alternates": 86_400.0,
    "supposed": 600.0,
}
LONGEST = max(LIFE.values())

Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Factor = Annotated[float, msgspec.Meta(ge=0, lt=20)]
Stamp = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Text = Annotated[str, msgspec.Meta(max_length=64)]


@dataclass(frozen=True, slots=True)
class Limits:
    """One caller's proofs of one model, by what they limit; one whose value is 0 was taken back."""

    proofs: Mapping[str, Proof] = field(default_factory=dict)

    def holding(self, now: float, since: float = 0.0) -> Iterator[tuple[str, Proof]]:
        """The proofs that hold at a time and are later than `since`. Replicas' clocks may differ a little."""
        for kind, proof in self.proofs.items():
            if proof.value and proof.at > since and abs(now - proof.at) < LIFE[kind]:
                yield kind, proof

    def learned(self, now: float, since: float = 0.0) -> LearnedLimits:
        """What a plan may rest on at a time. A window that was named outranks one that was supposed."""
        found = {kind: proof.value for kind, proof in self.holding(now, since)}
        if not found:
            return NOTHING_LEARNED
        window, supposed = found.get("window"), found.get("supposed")
        tokens = window or supposed
        return LearnedLimits(
            None if tokens is None else int(tokens),
            int(found["max_input"]) if "max_input" in found else None,
            found.get("scale", 1.0),
            supposed=window is None and supposed is not None,
            alternates="alternates" in found,
        )

    def proved(self, learned: LearnedLimits, proof: Proof) -> Limits:
        """The record after a refusal that proved so much; `proof` tells the circumstances and the time."""
        told: dict[str, float] = {}
        if learned.window is not None:
            told["supposed" if learned.supposed else "window"] = learned.window
        if learned.max_input is not None:
            told["max_input"] = learned.max_input
        if learned.scale != 1.0:
            told["scale"] = learned.scale
        if learned.alternates:
            told["alternates"] = 1
        return self._with({kind: replace(proof, value=value) for kind, value in told.items()})

    def answered(self, used: int, reply: int, now: float, *, agrees: bool, probed: bool) -> Limits:
        """The record after a prompt of `used` tokens with so many asked for was answered: limits that are under it are
        taken back. `agrees` says that the upstream's count is near ours, `probed` that the request was planned as if
        nothing were known: only then does the reply count, and is a correction of our counts disproved."""
        both = used + (reply if agrees and probed else 0)
        least = {"window": both, "supposed": both, "max_input": used}
        gone = [kind for kind, size in least.items() if kind in self.proofs and 0 < self.proofs[kind].value < size]
        if agrees and probed and "scale" in self.proofs and self.proofs["scale"].value:
            gone.append("scale")
        return self._with({kind: Proof(0, now) for kind in gone}) if gone else self

    def _with(self, told: Mapping[str, Proof]) -> Limits:
        """A later word outranks the one before it, whoever's clock that was by."""
        later = {kind: replace(proof, at=self._after(kind, proof.at)) for kind, proof in told.items()}
        return Limits({**self.proofs, **later})

    def _after(self, kind: str, now: float) -> float:
        before = self.proofs.get(kind)
        return now if before is None else max(now, before.at + 0.001)

    def joined(self, other: Limits) -> Limits:
        """Both records as one: of two words on one limit the later, of two at once the smaller."""
        kinds = {**self.proofs, **other.proofs}
        both = {
            kind: max((r.proofs[kind] for r in (self, other) if kind in r.proofs), key=lambda p: (p.at, -p.value))
            for kind in kinds
        }
        return Limits(both)


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    value: Factor | Tokens
    at: Stamp
    rule: Text
    counted: Tokens
    reply: Tokens
    named: Tokens
    quality: Text


_RECORD = msgspec.msgpack.Decoder(dict[str, _Packed])


def pack(limits: Limits) -> bytes:
    """The record's bytes: figures and the names of rules, nothing else."""
    return msgspec.msgpack.encode(
        {kind: (p.value, p.at, p.rule, p.counted, p.reply, p.named, p.quality) for kind, p in limits.proofs.items()}
    )


def unpack(payload: bytes) -> Limits | None:
    """The record of bytes; None where they are none, or a figure is absurd."""
    try:
        found = _RECORD.decode(payload)
    except msgspec.MsgspecError:
        return None
    if not found.keys() <= LIFE.keys() or any(not _sound(kind, packed) for kind, packed in found.items()):
        return None
    return Limits({kind: Proof(*msgspec.structs.astuple(packed)) for kind, packed in found.items()})


def _sound(kind: str, packed: _Packed) -> bool:
    if kind == "scale":
        return packed.value == 0 or 0.05 < packed.value < 20
    return packed.value == int(packed.value)
