"""What usage showed of images and files whose cost no body shows, by tenant and model; kept in this process alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.model.bounded import Bounded
from proxy.model.ports import Medium

MAX_TENANTS, MAX_MEDIA = 1_000, 512  # of one tenant and model
MAX_COST = 10**7  # tokens of one part; more than any window
NOISE = 0.01  # a share of the usage: what known costs may differ by


@dataclass(slots=True)
class MediaCosts:
    """Tokens of media by the digest of their URL or id. One tenant's usage teaches nothing about another's."""

    _tenants: Bounded[tuple[bytes, str], Bounded[int, int]] = field(default_factory=lambda: Bounded(MAX_TENANTS))

    @property
    def filled(self) -> bool:
        """Whether anything was ever learned."""
        return self._tenants.filled

    def known(self, tenant: bytes, model: str) -> Callable[[int], int | None] | None:
        """The tokens of a part by its digest; None where nothing is known of this tenant's media."""
        found = self._tenants.get((tenant, model))
        return None if found is None else found.get

    def learn(self, tenant: bytes, model: str, media: Sequence[Medium], counted: int, usage: int) -> None:
        """Learns from an answer: `usage` less all else that we `counted` is what the media cost. Those of unknown cost
        share what those of known cost leave, in proportion to what they usually cost; where all are known, all do."""
        if not all(medium.digest for medium in media):
            return
        rest = counted - sum(medium.tokens for medium in media)
        unknown = [medium for medium in media if not medium.known]
        if not unknown and abs(usage - counted) <= NOISE * usage:
            return
        shared = unknown or media
        left = usage - rest - sum(medium.tokens for medium in media if medium.known and unknown)
        usual = sum(medium.tokens for medium in shared)
        if usual <= 0:
            return
        found = self._tenants.get((tenant, model)) or self._tenants.put((tenant, model), Bounded(MAX_MEDIA))
        for medium in shared:
            found.put(medium.digest, min(MAX_COST, max(0, round(left * medium.tokens / usual))))
