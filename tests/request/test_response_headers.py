"""The response headers of a request, as far as its stages have come."""

from __future__ import annotations

import pytest

from proxy.apis.openai_chat import API
from proxy.model.limits import Window
from proxy.model.outcome import Usage
from proxy.model.plan import Mode
from proxy.model.scan import Scan
from proxy.model.structs import replace
from proxy.request.response_headers import headers_of, is_truncated, notices_of
from proxy.request.stages import Counted, Planned, Received, Scanned
from proxy.wire.controls import Controls
from tests.e2e.services import body, talk
from tests.request.planned import arrived, prepared, services
from tests.request.test_context import made, request

NOTHING = Planned(Received(API, Mode.FIT))


def test_headers_have_what_is_known_by_then() -> None:
    assert headers_of(NOTHING, "") == []
    planned = request(plan=made()).planned
    assert planned is not None
    names = {name for name, _ in headers_of(planned, "")}
    assert b"x-plimsoll-steps" in names and b"x-plimsoll-tokens-sent" in names


@pytest.mark.parametrize(("upstream", "told"), [("", False), ("default", False), ("local", True)])
def test_an_upstream_is_named_where_it_is_not_the_default_one(upstream: str, told: bool) -> None:
    assert (b"x-plimsoll-upstream" in dict(headers_of(NOTHING, upstream))) is told


def test_what_is_observed_says_so_whatever_is_known() -> None:
    assert headers_of(replace(NOTHING, received=Received(API, Mode.OBSERVE)), "") == [(b"x-plimsoll-mode", b"observe")]


def test_notices_say_what_had_no_effect_and_what_was_left_out() -> None:
    scanned = Scanned(b"{}", Scan("m", None, False, 1), Controls(window=9_000), left_out=1_234)
    known = replace(NOTHING, scanned=scanned, counted=Counted(Window(8_000, source="rules")))
    said = " ".join(notices_of(known))
    assert "8000" in said.replace(",", "") and "1,234 messages in the middle are left out" in said
    assert notices_of(replace(known, unplanned="it is no JSON")) == [
        "the request was sent as it came, unmeasured: it is no JSON"
    ]
    unmoved = replace(known, unmoved=("not moved to large-1: it is too small", ("too_small",)))
    assert "not moved to large-1: it is too small" in notices_of(unmoved)


@pytest.mark.parametrize(("share", "cut"), [(0.3, True), (0.97, False)])
def test_an_answer_that_read_far_less_than_was_sent_is_said_to_be_cut(share: float, cut: bool) -> None:
    context = arrived(body(talk(100)))
    prepared(services().gateway.default.planner, context)
    sent = context.total.prompt if context.total is not None else context.stage.descent.plan.draft.billed  # type: ignore[union-attr]
    assert is_truncated(context.stage, Usage(int(share * sent))) is cut
    assert not is_truncated(NOTHING, Usage(1)), "what was not counted is never said to be cut"
