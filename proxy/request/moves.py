"""Remarks on moves that the ladder allows and that cannot be made, or not for a caller's first request. It sends
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.config.upstreams import ANY, DEFAULT
from proxy.request.backend import Backend
from proxy.request.facts import Knowledge
from proxy.request.routes import PATHS, Routes


def doubtful_moves(models: Sequence[str], home: Knowledge, routes: Routes | None) -> list[str]:
    """One line for each. `models` are those of the ladder, in its order; `home` is the default upstream's."""
    said, before = [], ""
    for model in models:
        known = home if routes is None else routes.of(model, next(iter(PATHS)))
        said += [f"a move to {model} {why}" for why in _problems(model, routes)]
        window = known.known(model)
        if window.guessed:
            said.append(f"a move to {model} is not made: its window is not known; a row of windows.toml may say it")
        elif before and window.tokens <= home.known(before).tokens:
            said.append(f"a move to {model} is made only where {before}, which comes first, lacks what a request needs")
        before = before if window.guessed else model
    return said


def _problems(model: str, routes: Routes | None) -> Iterator[str]:
    if routes is None:
        return
    apis = [api for api, path in PATHS.items() if not routes.routing.is_foreign(path, model)]
    if not apis:
        yield "is not made: no upstream has it for an API that is fitted"
        return
    backend = routes.backends[routes.routing.upstream(PATHS[apis[0]], model)]
    if backend.route is None or backend.row is None:
        return
    if not backend.route.serves(model):
        yield f"is not made: the upstream {backend.name} does not serve it"
    elif not backend.upstream.has_key and backend.knowledge.keys.checked:
        yield f"fails: the upstream {backend.name} checks keys, and its row names none"
    elif backend.upstream.has_key and backend.row.callers != ANY:
        yield from _for_callers(backend, routes.backends[DEFAULT].knowledge)


def _for_callers(backend: Backend, home: Knowledge) -> Iterator[str]:
    """What stands in the way of callers whose own key must be accepted."""
    may = f'the row {backend.name} may have callers = "any"'
    if home.keys.says is False:
        yield f"is not made for callers with a key: {DEFAULT} does not check keys; {may}"
    elif home.keys.says is None:
        yield (
            f"is not made for callers with a key until {DEFAULT} has refused one: no row of key_checks.toml says that "
            f"it checks them; {may}"
        )
    elif not home.keys.probe:
        yield (
            f"is not made for the first request of a caller: key_checks.toml has no probe for {DEFAULT}, so that its "
            f"key is known from its first answer on; {may}"
        )
