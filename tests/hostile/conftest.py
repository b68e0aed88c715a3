"""Every attack is made on one worker and on two; the cases of one take turns, half on one and half on two."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.harness import Answered, Running, friendly, running, upstream
from tests.recorder import Recorder, Request, Script

HERE = Path(__file__).parent
DAY_S, QUIET_S = 86_400, 60.0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where an attack has several cases, each runs with one number of workers, and its neighbour with the other."""
    lists: dict[tuple[Path, str, str], list[Any]] = defaultdict(list)
    turns: dict[tuple[Path, str], dict[int, list[pytest.Function]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if not isinstance(item, pytest.Function) or HERE not in item.path.parents or "workers" not in _values(item):
            continue
        attack, place = (item.path, item.function.__name__), 0
        for name, value in _values(item).items():
            listed = lists[*attack, name]
            if not any(value is other for other in listed):
                listed.append(value)
            place += 0 if name == "workers" else next(n for n, other in enumerate(listed) if value is other)
        turns[attack][place % 2].append(item)
    left_out = {
        item
        for by_turn in turns.values()
        if len(by_turn) == 2
        for turn, found in by_turn.items()
        for item in found
        if _values(item)["workers"] % 2 == turn
    }
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])


def _values(item: pytest.Function) -> dict[str, Any]:
    """The parameters of a case; of several that stand in one list the first."""
    found = {**item.callspec.params} if hasattr(item, "callspec") else {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
        for name in names[1:]:
            found.pop(name, None)
    return found


@pytest.fixture(scope="module", params=[1, 2], ids=["one_worker", "two_workers"])
def workers(request: pytest.FixtureRequest) -> int:
    """How many processes serve."""
    count: int = request.param
    return count


@pytest.fixture(autouse=True)
def by_day_or_by_night() -> None:
    """No test runs over midnight (UTC): budgets begin anew then."""
    left = DAY_S - time.time() % DAY_S
    if left < QUIET_S:
        time.sleep(left)


@dataclass(slots=True)
class Place:
    """A proxy and its upstream, which one test after another attacks."""

    proxy: Running
    there: Recorder
    marks: int = 0

    def scripted(self, script: Script = friendly) -> None:
        """From now on the upstream answers so; what it has seen is forgotten."""
        self.there.script = script
        self.there.requests.clear()

    def seen(self) -> list[Request]:
        """The requests that have reached the upstream; one more, which is not given, went through all of it before."""
        self.marks += 1
        mark = f"/v1/mark/{self.marks}"
        self.there.script = friendly
        assert self.proxy.ask(path=mark).status == 200
        return [r for r in self.there.requests if not r.target.startswith(b"/v1/mark/") and r.target != b"/v1/models"]

    def ask(self, *args: object, **kwargs: object) -> Answered:
        """One request to the proxy."""
        return self.proxy.ask(*args, **kwargs)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def services(request: pytest.FixtureRequest, workers: int) -> Iterator[Place]:
    """A proxy for all tests of a module, with the module's SETTINGS."""
    settings: dict[str, str] = getattr(request.module, "SETTINGS", {})
    with upstream() as there, running(there.url, workers=workers, admin=False, **settings) as proxy:
        yield Place(proxy, there)


@pytest.fixture
def place(services: Place) -> Place:
    """The same, with an upstream that has seen nothing and answers everything."""
    services.scripted()
    return services
