"""Which upstream a request goes to: by the rows of upstreams.toml, its path and its model. It sends nothing."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.apis import has_path, servers
from proxy.config.model_names import MAX_LENGTH
from proxy.config.upstreams import DEFAULT, UpstreamRow
from proxy.model.bounded import Bounded

# A path that every upstream reads in the same way. A glob matches no other path: `/v1/messages/../files` is none of
# `/v1/messages*`.
PLAIN_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.~:@!$&'()*+,=-]+)+", re.ASCII)
MAX_ROUTES = 4_096  # routes that are remembered: clients choose the names


def globs(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """One pattern for all of these globs, in lower case; None if there is none."""
    translated = [fnmatch.translate(pattern.strip().lower()) for pattern in patterns]
    return re.compile("|".join(translated)) if translated else None


@dataclass(frozen=True, slots=True)
class Route:
    """A row, compiled."""

    row: UpstreamRow
    models: re.Pattern[str] | None
    paths: re.Pattern[str] | None
    serving: re.Pattern[str] | None = None

    def speaks(self, path: str) -> bool:
        """Whether the upstream has the API of a path."""
        return has_path(servers()[self.row.api], path)

    def names(self, path: str) -> bool:
        """Whether a path is one of those that the row names."""
        return self.paths is not None and is_plain(path) and self.paths.match(path.lower()) is not None

    def serves(self, model: str) -> bool:
        """Whether the row serves a model. One that says which it serves serves no other, and none without a name."""
        if self.serving is None:
            return True
        return 0 < len(model) <= MAX_LENGTH and self.serving.match(model.lower()) is not None

    def takes(self, path: str, model: str) -> bool:
        """Whether a request belongs to the row. A row without globs takes only requests that name it."""
        if (self.models is None and self.paths is None) or not self.speaks(path):
            return False
        if self.models is not None and not (0 < len(model) <= MAX_LENGTH and self.models.match(model.lower())):
            return False
        return self.paths is None or self.names(path)


def is_plain(path: str) -> bool:
    """Whether every upstream reads a path in the same way."""
    return PLAIN_PATH.fullmatch(path) is not None


@dataclass(slots=True)
class Routing:
    """The rows, in order. The first one that takes a request gets it; else it goes to the default upstream."""

    routes: tuple[Route, ...]
    _known: Bounded[tuple[str, str], str] = field(default_factory=lambda: Bounded(MAX_ROUTES))

    def is_foreign(self, path: str, model: str) -> bool:
        """Whether a model is one of rows for other APIs alone: no upstream has it for this path."""
        rows = [route for route in self.routes if route.models is not None and route.models.match(model.lower())]
        return bool(rows) and not any(route.speaks(path) for route in rows)

    def upstream(self, path: str, model: str = "") -> str:
        """The name of the upstream of a request; `model` is empty if it has none, or none that is known."""
        found = self._known.get((path, model))
        if found is None:
            found = next((route.row.name for route in self.routes if route.takes(path, model)), DEFAULT)
            if len(model) <= MAX_LENGTH:
                self._known.put((path, model), found)
        return found


def routing(rows: Iterable[UpstreamRow]) -> Routing:
    """The routing by these rows."""
    return Routing(tuple(Route(row, globs(row.models), globs(row.paths), globs(row.serves)) for row in rows))
