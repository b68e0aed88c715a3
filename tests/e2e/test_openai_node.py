"""The openai package for Node: whatever it is asked, it gets the same through the proxy as straight."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.client_scripts import Told
from tests.e2e.node_clients import HERE, run_client
from tests.e2e.world import World, world

SAME = (
    *("chat", "stream", "usage", "answers", "tools", "parallel", "parsed", "models", "closed"),
    *("missing", "unauthorised", "limited", "failing", "orphan", "impatient", "aborted"),
)


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture(scope="module")
def told(here: World) -> tuple[Told, Told]:
    """What the client was told straight, and through the proxy."""
    return run_client(here, "openai_chat.mjs")


@pytest.mark.parametrize("scenario", SAME)
def test_it_is_the_same_through_the_proxy(told: tuple[Told, Told], scenario: str) -> None:
    straight, through = (way[scenario] for way in told)
    assert straight == through


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("missing", "NotFoundError"),
        ("unauthorised", "AuthenticationError"),
        ("limited", "RateLimitError"),
        ("failing", "InternalServerError"),
        ("orphan", "BadRequestError"),
        ("unfit", "BadRequestError"),
        ("impatient", "APIConnectionTimeoutError"),
        ("aborted", "APIUserAbortError"),
    ],
)
def test_a_failure_is_of_the_kind_that_programs_expect(told: tuple[Told, Told], scenario: str, kind: str) -> None:
    assert [way[scenario]["failure"]["kind"] for way in told] == [kind, kind]


@pytest.mark.parametrize(("scenario", "tries"), [("unauthorised", 1), ("limited", 3), ("failing", 2), ("orphan", 1)])
def test_a_failure_is_tried_as_often(here: World, told: tuple[Told, Told], scenario: str, tries: int) -> None:
    assert told
    assert [len(here.seen(f"{scenario} {tag}")) for tag in ("straight", "through")] == [tries, tries]


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
