"""What refusals proved about a model's limits for one tenant: a record of proofs, each of which expires.

Theory of operation
===================

A provider that refuses a request for its length reveals something about its model: the window, a limit on the prompt,
how it counts, or that roles must alternate. Using that saves the next request a refused round trip. But an error
message is text: it quotes what clients send, and one model may have different windows for different keys. So what is
learned is stored as evidence, and used only as far as the evidence goes.

Scope. A record belongs to an upstream, a model and a tenant (a digest of the headers that upstreams distinguish
clients by). A refusal of one tenant's request never changes what another tenant gets. A new tenant starts from the
operator's rows, the tables and the upstream's own list; its first refusal costs it one round trip.

Evidence. `fit.learn.proven` decides before a proof arrives here: a refusal proves a limit only if the refused request
was over it by our own count. Figures that contradict our count prove nothing, nor do words and figures that the request
itself contains (`wire.echoes`). A row that the operator wrote in windows.toml is never overridden.

Kinds. A refusal that names its figure proves `window`, `max_input` or `scale` (how much more than we the upstream
counts); one that asks for alternating roles proves `alternates`, one for reasoning as it was `binds`, and one that
adds the reply to the prompt `shared`. A refusal without a figure proves none of these (`proxy.cache.intervals`). A
response also proves `max_input`, if the upstream reported the same prompt tokens for several different prompts
(`tokens.usage`).

Expiry and probes. Every proof expires (`LIFETIME_S`), and it is tested before that. Once per probe interval a request
that the limit would cut is sent as if nothing had been learned. If the upstream refuses it, the request is healed, the
refusal is a new proof, and the interval is twice as long: from a minute to an hour. If the upstream answers it, the
proof is withdrawn: if the response reports usage, only when that agrees with our count, because an upstream that
truncates silently reports less; if it does not, always, because this upstream is known to refuse. After the upstream
was unreachable all proofs are due for a probe at once: it may have been restarted with another window.

Use. Proofs make a plan cut more; they never cause an error of ours. What no plan fits is sent as it is.

Replicas. Of two proofs of one kind the later wins. A withdrawn proof stays in the record with the value 0, so that an
older proof from another replica cannot restore it. Replicas of versions with another format use other names (`KIND`).

This module is pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Proof
from proxy.model.structs import replace

# Part of the name under which a record is stored. Another format needs another number, a new kind of proof does not:
# versions that share one Redis during an upgrade leave out the kinds that they do not know.
KIND = "limits:1"
# Seconds that a proof is valid unless it is proven again. A figure is probed, so its expiry only cleans up.
LIFETIME_S: Mapping[str, float] = {
    "window": 21_600.0,
    "max_input": 21_600.0,
    "scale": 21_600.0,
    "alternates": 86_400.0,
    "binds": 86_400.0,
    "shared": 86_400.0,
}
FACTS = ("alternates", "binds", "shared")  # kinds that are no figures; they are not probed
MAX_LIFETIME_S = max(LIFETIME_S.values())

Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Factor = Annotated[float, msgspec.Meta(ge=0, lt=20)]
Timestamp = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Text = Annotated[str, msgspec.Meta(max_length=64)]


@dataclass(frozen=True, slots=True)
class LimitProofs:
    """The proofs for one model and tenant, by kind. A proof with the value 0 was withdrawn. Times are in seconds since
    1970."""

    proofs: Mapping[str, Proof] = field(default_factory=dict)

    def valid(self, now: float, since: float = 0.0) -> Iterator[tuple[str, Proof]]:
        """The proofs that are valid at a time and later than `since`. Tolerates clocks that differ a little."""
        for kind, proof in self.proofs.items():
            if proof.value and proof.at > since and abs(now - proof.at) < LIFETIME_S[kind]:
                yield kind, proof

    def learned(self, now: float, since: float = 0.0) -> LearnedLimits:
        """The limits that a plan may use at a time."""
        found = {kind: proof.value for kind, proof in self.valid(now, since)}
        if not found:
            return NOTHING_LEARNED
        return LearnedLimits(
            int(found["window"]) if "window" in found else None,
            int(found["max_input"]) if "max_input" in found else None,
            found.get("scale", 1.0),
            alternates="alternates" in found,
            binds="binds" in found,
            shared="shared" in found,
        )

    def after_refusal(self, learned: LearnedLimits, proof: Proof) -> LimitProofs:
        """The record after a refusal that proved these limits; `proof` has the circumstances and the time."""
        values: dict[str, float] = {}
        if learned.window is not None:
            values["window"] = learned.window
        if learned.max_input is not None:
            values["max_input"] = learned.max_input
        if learned.scale != 1.0:
            values["scale"] = learned.scale
        values |= {kind: 1 for kind in FACTS if getattr(learned, kind)}
        return self._with({kind: replace(proof, value=value) for kind, value in values.items()})

    def after_answer(self, used: int, reply: int, now: float, *, agrees: bool, probed: bool) -> LimitProofs:
        """The record after an answer to a prompt of `used` tokens that asked for `reply` more: withdraws the limits
        that are smaller.

        `agrees`: the upstream's count is close to ours. `probed`: the request was planned without the record. Only if
        both hold does the reply count, and is `scale` withdrawn.
        """
        both = used + (reply if agrees and probed else 0)
        disproved_below = {"window": both, "max_input": used}
        withdrawn = [
            kind for kind, size in disproved_below.items() if kind in self.proofs and 0 < self.proofs[kind].value < size
        ]
        if agrees and probed and "scale" in self.proofs and self.proofs["scale"].value:
            withdrawn.append("scale")
        return self._with({kind: Proof(0, now) for kind in withdrawn}) if withdrawn else self

    def _with(self, proofs: Mapping[str, Proof]) -> LimitProofs:
        """Adds proofs. Each gets a later time than the one it replaces, whose clock may have been ahead of ours."""
        later = {kind: replace(proof, at=self._after(kind, proof.at)) for kind, proof in proofs.items()}
        return LimitProofs({**self.proofs, **later})

    def _after(self, kind: str, now: float) -> float:
        before = self.proofs.get(kind)
        return now if before is None else max(now, before.at + 0.001)

    def merged(self, other: LimitProofs) -> LimitProofs:
        """The proofs of both replicas: of one kind the later, of two at the same time the smaller."""
        kinds = {**self.proofs, **other.proofs}
        both = {
            kind: max((r.proofs[kind] for r in (self, other) if kind in r.proofs), key=lambda p: (p.at, -p.value))
            for kind in kinds
        }
        return LimitProofs(both)


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    value: Factor | Tokens
    at: Timestamp
    rule: Text
    counted: Tokens
    reply: Tokens
    named: Tokens
    quality: Text


_RECORD = msgspec.msgpack.Decoder(dict[str, _Packed])


def pack(record: LimitProofs) -> bytes:
    """A record as msgpack: figures and the names of rules, no content."""
    return msgspec.msgpack.encode(
        {kind: (p.value, p.at, p.rule, p.counted, p.reply, p.named, p.quality) for kind, p in record.proofs.items()}
    )


def unpack(payload: bytes) -> LimitProofs | None:
    """The record in a payload, without kinds of other versions; None if it is malformed or a figure is out of range.
    Never raises."""
    try:
        found = _RECORD.decode(payload)
    except msgspec.MsgspecError:
        return None
    found = {kind: packed for kind, packed in found.items() if kind in LIFETIME_S}
    if not all(_is_plausible(kind, packed) for kind, packed in found.items()):
        return None
    return LimitProofs({kind: Proof(*msgspec.structs.astuple(packed)) for kind, packed in found.items()})


def _is_plausible(kind: str, packed: _Packed) -> bool:
    if kind == "scale":
        return packed.value == 0 or 0.05 < packed.value < 20
    return packed.value == int(packed.value)
