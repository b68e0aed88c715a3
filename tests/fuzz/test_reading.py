"""Bodies by chance, read in two ways: the scan of the bytes and the parsed request agree; nothing else is raised."""

from __future__ import annotations

import json

import pytest
from hypothesis import event, given

from proxy.apis import by_path
from proxy.fit.plan import plan, start
from proxy.model.api import Api
from proxy.model.conversation import Prompt
from proxy.model.limits import Window
from proxy.model.plan import Facts
from proxy.model.scan import Scan
from proxy.tokens.meter import meter_for
from proxy.wire.scan import NotUnderstood
from tests.fuzz.bodies import mutated, mutations, scars, seeds
from tests.fuzz.dialects import DIALECTS, Dialect
from tests.makers import ladder
from tests.tokens.remembering import Remembering

NOT_IN_THE_BODY = 1_900  # tokens that the byte proof allows for: tool prompts and the like (`families.Overhead`)
dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def read(api: Api, body: bytes) -> tuple[Scan | None, Prompt | None]:
    """What a scan and the parser make of a body; None where they do not understand it."""
    try:
        scan = api.request.scan(body)
    except NotUnderstood:
        scan = None
    try:
        prompt = api.request.parse(body)
    except NotUnderstood:
        prompt = None
    return scan, prompt


@dialects
@given(seeds, mutations, scars)
def test_the_scan_and_the_parser_agree(
    dialect: Dialect, seed: int, changes: list[tuple[int, int, int]], cuts: list[tuple[int, int]]
) -> None:
    api = by_path()[dialect.path]
    scan, prompt = read(api, mutated(dialect.valid(seed), changes, cuts))
    event(f"scanned {scan is not None}, parsed {prompt is not None}")
    if scan is None or prompt is None:
        return
    assert (scan.model, scan.stream) == (prompt.model, prompt.stream)
    assert scan.reserve == prompt.reply.limit
    if scan.most is not None:
        draft = start(prompt, ladder(), Facts(Window(10**9), meter_for(prompt, "gpt-4o", Remembering())))
        assert draft.prompt <= scan.most + NOT_IN_THE_BODY, "bytes bound the tokens"


@dialects
@given(seeds, mutations, scars)
def test_what_no_step_changed_is_written_as_it_came(
    dialect: Dialect, seed: int, changes: list[tuple[int, int, int]], cuts: list[tuple[int, int]]
) -> None:
    api = by_path()[dialect.path]
    body = mutated(dialect.valid(seed), changes, cuts)
    _, prompt = read(api, body)
    if prompt is None:
        return
    unchanged = plan(prompt, ladder(), Facts(Window(10**9), meter_for(prompt, prompt.model, Remembering())))
    written = api.request.render(prompt, unchanged)
    try:
        assert json.loads(written) == json.loads(body)
    except (RecursionError, UnicodeDecodeError, ValueError):
        assert api.request.parse(written) == prompt  # NaN is not itself, and msgspec reads what is no JSON to Python
