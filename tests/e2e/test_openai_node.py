"""The openai package for Node: whatever it is asked, it gets the same through the proxy as straight."""

from __future__ import annotations

import json

from tests.e2e.client_scripts import Told
from tests.e2e.node_clients import HERE, fails_as, same_through_the_proxy, told_by, tried, worlds
from tests.e2e.world import World

SAME = (
    *("chat", "stream", "usage", "answers", "tools", "parallel", "parsed", "models", "closed"),
    *("missing", "unauthorised", "limited", "failing", "orphan", "impatient", "aborted"),
)


here = worlds()
told = told_by("openai_chat.mjs")
test_it_is_the_same_through_the_proxy = same_through_the_proxy(*SAME)
test_a_failure_is_of_the_kind_that_programs_expect = fails_as(
    {
        "missing": "NotFoundError",
        "unauthorised": "AuthenticationError",
        "limited": "RateLimitError",
        "failing": "InternalServerError",
        "orphan": "BadRequestError",
        "unfit": "BadRequestError",
        "impatient": "APIConnectionTimeoutError",
        "aborted": "APIUserAbortError",
    }
)
test_a_failure_is_tried_as_often = tried({"unauthorised": 1, "limited": 3, "failing": 2, "orphan": 1})


def test_what_nothing_makes_fit_costs_nothing(here: World, told: tuple[Told, Told]) -> None:
    failures = [way["unfit"]["failure"] for way in told]
    assert [f["code"] for f in failures] == ["context_length_exceeded"] * 2
    assert [f["param"] for f in failures] == ["messages"] * 2
    assert [len(here.seen(f"unfit {tag}")) for tag in ("straight", "through")] == [1, 0]


def test_too_long_a_conversation_fails_straight_and_succeeds_through_the_proxy(told: tuple[Told, Told]) -> None:
    straight, through = told
    for scenario in ("long", "longstream"):
        assert straight[scenario]["failure"]["code"] == "context_length_exceeded"
    assert through["long"]["answer"]["choices"][0]["finish_reason"] == "stop"
    assert through["longstream"]["answer"][-1]["choices"][0]["finish_reason"] == "stop"


def test_a_stream_that_the_upstream_breaks_off_is_an_error_and_no_end(told: tuple[Told, Told]) -> None:
    """Straight it is an error of the transport; the proxy tells it as one of the API, which programs expect."""
    straight, through = (way["broken"]["failure"] for way in told)
    assert (straight["kind"], through["kind"]) == ("TypeError", "APIError")
    assert through["body"]["code"] == "upstream_error"


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((HERE / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("resolved" not in package and package["integrity"].startswith("sha512-") for package in packages)
