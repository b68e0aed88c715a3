"""The report as one HTML file: it loads nothing, and no text of the input is markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from proxy.model.outcome import Usage
from proxy.replay.html import page
from proxy.replay.recorded import Figures, Recorded
from proxy.replay.style import STYLE
from tests.makers import user, words
from tests.replay.recordings import chat
from tests.replay.test_report import reported
from tests.replay.test_sums import PRICES

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u202e\x1b[2J"
LOADS = ("script", "link", "img", "iframe", "object", "embed", "base", "form", "audio", "video", "a", "use", "image")


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def hostile() -> str:
    """A page of which every text of the input is hostile."""
    messages = [
        user(HOSTILE),
        *(user(words(60, f"m{i}{HOSTILE}")) for i in range(200)),
        {"role": HOSTILE, "content": "x"},
    ]
    body = json.dumps({"model": f"gpt-4 {HOSTILE}", "messages": messages}).encode()
    recorded = Recorded(body, app=HOSTILE, usage=Usage(9_000, 1, 10), missing=(HOSTILE,), redacted=True)
    found = reported(recorded, chat(200), b"{", content=True)
    found["columns"][0]["worst"][0]["app"] = HOSTILE
    found["input"]["unreadable"] = [HOSTILE]
    for kind in ("formats", "not_understood", "other_lines", "missing"):
        found["input"][kind] = {HOSTILE: 1}
    found["columns"][0]["name"] = found["prices_at"] = HOSTILE
    first = found["columns"][0]
    for group in (*first["models"], *first["apps"], *first["callers"]):
        group["name"] = HOSTILE
    first["without_price"] = [{"model": HOSTILE, "where": HOSTILE, "why": HOSTILE, "requests": 1}]
    budget = {name: HOSTILE for name in ("budget", "name", "over", "limit", "most")}
    figures = {"share": 0.5, "stages": [1, 2, 3, 4], "refused": 5, "changes": [{"at": 1_763_000_000.0, "stage": 1}]}
    first["budgets"] = [budget | figures | {"evidence": {"taken": 4, "kept": 3, "requests": 2, "paired": 1}}]
    found["input"] |= {"unknown_upstreams": [HOSTILE], "unused_rules": [HOSTILE]}
    for step in (*found["columns"][0]["steps"], *found["columns"][0]["worst"][0]["steps"]):
        step["step"] = HOSTILE
    for row in found["columns"][0]["worst"][0]["rows"]:
        row |= {"role": HOSTILE, "why": HOSTILE, "text": HOSTILE, "text_sent": HOSTILE, "state": HOSTILE}
    return page(found)


def test_no_text_is_markup() -> None:
    text = hostile()
    assert "alert(1)" in text and "<script" not in text and "<img" not in text
    elements = Elements(text).found
    assert not [tag for tag, _ in elements if tag in LOADS]
    allowed = {"class", "content", "http-equiv", "name", "charset", "lang", "viewbox", "role", "aria-label", "x"}
    allowed |= {"width", "height", "preserveaspectratio", "y"}
    assert {name for _, attributes in elements for name in attributes} <= allowed
    assert {a["class"] for _, a in elements if a.get("class")} <= set(re.findall(r"\.([a-z]+)", STYLE)) | {"kept"}


def test_the_policy_allows_its_own_style_and_nothing_else() -> None:
    text = page(reported(chat(3)))
    (policy,) = (
        a["content"] or "" for tag, a in Elements(text).found if a.get("http-equiv") == "Content-Security-Policy"
    )
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]
    assert "url(" not in text and "@import" not in text and "http://" not in text and "https://" not in text


def test_figures_alone_have_a_section() -> None:
    text = page(reported(chat(3), Recorded(figures=Figures(900, 500, 1.1, ((HOSTILE, 900, 500),)), model=HOSTILE)))
    assert "Requests with figures only" in text and "<script" not in text


def test_contents_are_shown_only_where_they_were_asked_for() -> None:
    assert "t1x1 " in page(reported(chat(200), content=True)) and "t1x1 " not in page(reported(chat(200)))


@pytest.mark.parametrize("bodies", [(), (b"{",), (chat(3),), (chat(200),) * 4])
def test_every_report_is_a_page(bodies: tuple[bytes, ...]) -> None:
    text = page(reported(*bodies, prices=lambda recorded: lambda model, upstream: PRICES))
    planned = bodies and bodies[0] != b"{"
    tags = [tag for tag, _ in Elements(text).found]
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")
    assert tags.count("section") == (6 if planned else 0)
    assert ("Nothing was cut." in text) is (bodies == (chat(3),))


def test_times_that_are_no_times_are_left_out() -> None:
    found = reported(Recorded(chat(3), at=1_763_000_000.0))
    assert "2025-11-13 02:13 UTC" in page(found)
    found["input"]["since"] = 1e300
    assert "UTC" in page(found)


def test_U26_names_stand_alone_in_one_line_to_be_copied() -> None:
    name = "mistral/mistral-small-latest-2026-11"
    text = page(reported(Recorded(chat(3, model=name), name="support team"), chat(200)))
    assert f"<td><code>{name}</code></td>" in text and "<td><code>support team</code></td>" in text


def test_U26_charts_show_loads_tokens_over_time_callers_and_steps() -> None:
    bodies = [Recorded(chat(200), at=1_763_000_000.0 + 86_400 * day, name=f"team-{day % 2}") for day in range(3)]
    text = page(reported(*bodies, prices=lambda recorded: lambda model, upstream: PRICES))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert captions == [
        "Load of the window: prompt and reply",
        "Prompt tokens, each bar 2 hours",
        "Cost of what would be sent, net, each bar 2 hours",
        "Who uses most",
        "What steps removed",
    ]
    assert text.count('<svg class="columns"') == 3 and "<title>over 150 %, as sent: 3</title>" in text


def test_U26_steps_have_one_row_each_with_a_figure_for_each_column() -> None:
    text = page(reported(chat(200), chat(60)))
    (section,) = re.findall(r"<h2>What steps did</h2>(.*?)</section>", text)
    assert section.count("<code>prune_history</code>") == 1 and section.count("<th>") == 3
    assert re.search(r"<td>[\d,]+ \(\d\)</td><td>[\d,]+ \(2\)</td>", section)


def test_U26_models_without_a_price_are_named_with_a_row_that_gives_one() -> None:
    text = page(reported(chat(3, model="house-7b")))
    assert "<td><code>house-7b</code></td>" in text and "[[price]]\nmodel = &quot;house-7b&quot;" in text
    assert "Models without a price" not in page(reported(chat(3), prices=lambda recorded: lambda model, up: PRICES))


def test_nothing_planned_says_which_setting_records_more() -> None:
    text = page(reported(Recorded(figures=Figures(900, 500, 1.1), model="m", name="team-a")))
    assert "PLIMSOLL_RECORD_CONTENT=meta, the default" in text and "<code>team-a</code>" in text
    assert "At a glance" not in text
