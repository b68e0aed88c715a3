"""What a client asks of Plimsoll itself."""

from __future__ import annotations

import pytest

from proxy.errors import ClientError
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported, Terms
from proxy.wire.controls import NOTHING_ASKED, Controls, controls


def asked(**headers: str) -> Controls:
    return controls([(f"x-plimsoll-{name}".encode(), value.encode("latin-1")) for name, value in headers.items()])


def test_a_client_that_asks_nothing_gets_the_one_value_for_that() -> None:
    assert controls([(b"host", b"x"), (b"x-other", b"y")]) is NOTHING_ASKED
    assert Controls() == NOTHING_ASKED


def test_what_was_asked_is_read() -> None:
    found = asked(mode="observe", ladder="agent", window=" 4096 ", pin="0, 3,3", lorebook="eldoria, The Tides")
    assert found == Controls(Mode.OBSERVE, "agent", 4096, frozenset({0, 3}), ("eldoria", "The Tides"))


def test_what_a_client_asks_goes_before_what_holds_for_all() -> None:
    usual = Terms(Reported.ASKED)
    assert asked(window="5").terms(usual) is usual and asked(usage="asked").terms(Terms()) == usual
    assert asked(usage="sent").terms(usual) == Terms()
    assert asked(effective="64000").terms(usual) == Terms(Reported.ASKED, 64_000)
    assert asked(**{"on-full": "agent"}).terms(usual) == Terms(Reported.ASKED, None, OnFull.AGENT)
    assert asked(effective="7", usage="sent").terms(Terms(effective=9)) == Terms(effective=7)


def test_an_empty_ladder_pin_or_lorebook_is_none() -> None:
    assert asked(ladder="", pin="", lorebook=" ,") == Controls()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "fast"),
        ("mode", "FIT"),
        ("mode", ""),
        ("usage", ""),
        ("usage", "both"),
        ("on-full", ""),
        ("on-full", "refuse"),
        ("effective", ""),
        ("effective", "0"),
        ("effective", "-1"),
        ("effective", "64k"),
        ("effective", "9" * 12),
        ("usage", "Asked"),
        ("window", "0"),
        ("window", "-5"),
        ("window", "many"),
        ("window", "1e5"),
        ("window", ""),
        ("window", "9" * 12),
        ("window", "\u00b2"),
        ("pin", "a"),
        ("pin", "1,,2"),
        ("pin", "-1"),
        ("pin", "9" * 9),
        ("pin", "\u00b9"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ClientError) as caught:
        asked(**{name: value})
    assert (caught.value.status, caught.value.param) == (400, f"x-plimsoll-{name}")
    assert value == "" or value not in caught.value.message or len(value) < 3


@pytest.mark.parametrize("coding", ["utf-8", "latin-1"])
def test_the_name_of_a_lorebook_may_have_any_letters(coding: str) -> None:
    found = controls([(b"x-plimsoll-lorebook", "Märchen, tides".encode(coding))])
    assert found.lorebooks == ("Märchen", "tides")
