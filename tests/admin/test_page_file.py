"""The page's file: what a browser may be given, and that it has words for everything that the proxy may report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proxy.fit.steps
from proxy.observe.metrics.outcome_metrics import RESULTS
from proxy.wire.rows import STATES

PAGE = (Path(__file__).parents[2] / "proxy/admin/page.html").read_text("utf-8")
SCRIPT = re.findall(r"<script>(.*?)</script>", PAGE, re.DOTALL)
STYLE = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
MARKUP = re.sub(r"<(script|style)>.*?</\1>", "", PAGE, flags=re.DOTALL)


def words(name: str) -> dict[str, str]:
    """The entries of one of the script's tables of words, by their names."""
    table = re.search(rf"^const {name} = \{{(.*?)^\}};", SCRIPT[0], re.DOTALL | re.MULTILINE)
    assert table is not None
    return dict(re.findall(r"^  (\w+): (.+),$", table[1], re.MULTILINE))


def test_the_page_is_one_script_and_one_style_that_hashes_can_allow() -> None:
    assert len(SCRIPT) == len(STYLE) == 1
    assert PAGE.count("<script") == PAGE.count("<style") == 1


MARKUP_OF_TEXT = "innerHTML outerHTML insertAdjacentHTML createContextualFragment document.write DOMParser srcdoc"
CODE_OF_TEXT = "eval( Function( javascript: import( document.cookie localStorage"


@pytest.mark.parametrize("forbidden", f"{MARKUP_OF_TEXT} {CODE_OF_TEXT}".split())
def test_nothing_in_the_page_makes_markup_or_code_of_a_text(forbidden: str) -> None:
    assert forbidden not in PAGE


def test_no_element_has_a_style_or_a_handler_of_its_own() -> None:
    assert not re.search(r"\s(style|on[a-z]+)\s*=", MARKUP)
    assert '"style"' not in SCRIPT[0] and not re.search(r"setAttribute\(\s*[\"'](on|style)", SCRIPT[0])


def test_the_page_names_no_other_host_and_all_its_addresses_are_relative() -> None:
    allowed = ("http://www.w3.org/2000/svg", "http://${host}")
    assert all(PAGE[m.start() :].startswith(allowed) for m in re.finditer(r"(https?|wss?|ftp):?//", PAGE))
    assert not re.search(r"""(href|src)=["']/|["'`]/api/(?!chat\b)|url\((?!#)|@import""", PAGE)


def test_every_result_has_a_sign_a_name_and_a_sentence() -> None:
    results = words("RESULTS")
    assert {result for result, _ in RESULTS} == set(results)
    assert all(re.fullmatch(r'\["\S", "[a-z ]+", "(|cut|bad)", ".+\."\]', row) for row in results.values())


def test_every_state_of_a_message_has_a_sign_of_its_own_and_a_sentence() -> None:
    states = words("STATES")
    assert set(states) == set(STATES)
    signs = [row[2] for row in states.values()]
    assert len(signs) == len(set(signs)), "colour alone would tell them apart"


def test_every_step_has_a_sentence() -> None:
    steps = {path.stem for path in Path(proxy.fit.steps.__path__[0]).glob("[a-z]*.py")}
    assert set(words("STEPS")) == steps


def luminance(colour: str) -> float:
    """The relative luminance of a colour `#rrggbb` (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(share * x for share, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "muted", "accent", "alert", "on-accent"])
def test_texts_are_readable_on_what_they_stand_on(scheme: int, text: str) -> None:
    palette = re.findall(r":root \{(.*?)\}", STYLE[0], re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", palette))
    for ground in ("accent",) if text == "on-accent" else ("paper", "raised"):
        high, low = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, ground
