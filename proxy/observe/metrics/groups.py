"""What outcomes have in common that are aggregated together, and the labels that nearly all rows of metrics share."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from proxy.observe.metrics.buffers import Labels

OTHER = "other"  # the label of a model that no table contains: clients must not be able to add series
BASE = ("endpoint", "model")
CALLER = "caller"  # follows `BASE` in some rows where a setting names a header


class Key(NamedTuple):
    """The fields of an outcome that decide its group, as they are."""

    endpoint: str
    result: str
    status: int
    model: str
    model_sent: str
    quality: str
    mode: str
    window_source: str
    upstream: str
    caller: str
    shape: str
    budget: str
    stage: int


KEY = attrgetter(*Key._fields)


class Base(NamedTuple):
    """The values of `BASE` (`pair`), and those with `CALLER`, if callers are told apart: where there are too many, one
    keeps the model and the other keeps the caller. `folded`: which of them became `OTHER` for that: `model`, `caller`
    or none."""

    pair: Labels
    keeps_model: Labels
    keeps_caller: Labels
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """What outcomes have in common that are aggregated together: `key`, and the first labels with the model that the
    client named (`asked`) and with the one that was sent (`sent`)."""

    key: Key
    asked: Base
    sent: Base

    @property
    def model(self) -> str:
        """The label of the model that the client named."""
        return self.asked.pair[1]

    @property
    def model_sent(self) -> str:
        """The label of the model that was sent."""
        return self.sent.pair[1]
