"""Every attack is made on one worker and on two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.hostile.harness import Answered, Running, friendly, running, upstream
from tests.recorder import Recorder, Request, Script


@pytest.fixture(scope="module", params=[1, 2], ids=["one_worker", "two_workers"])
def workers(request: pytest.FixtureRequest) -> int:
    """How many processes serve."""
    count: int = request.param
    return count


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
