"""The page in a real Chromium, before a proxy with two workers that a scripted day has passed through."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from proxy.cli.demo import BODY, LOCALHOST, started, wait_for
from proxy.simulator.app import SimulatorConfig, simulator
from tests.admin import day
from tests.admin.chromium import Tab, chromium, tab
from tests.admin.day import CHAT, CUT, HEALED, REST, SMALL, TURNS, Place, Scene
from tests.admin.payloads import payloads
from tests.e2e.services import talk
from tests.e2e.world import eventually, listening
from tests.ports import reserved_port

VIEWS = ("#/", "#/models", "#/system", "#/inspect", "#/terms")
SHORT = SMALL[0]
OBSERVED = next(scene for scene in REST if "x-plimsoll-mode" in scene.headers)  # the cut one's body, refused with a 400
# What a screen reader could not name or order in the view that is seen.
NAMELESS = """() => {
  const seen = e => e.offsetParent !== null, wrong = [];
  const named = e => (e.getAttribute("aria-label") || e.textContent).trim() !== "";
  const all = selector => [...document.querySelectorAll(selector)].filter(seen);
  for (const e of all("input, select, textarea")) if (!e.labels.length) wrong.push("no label: " + e.id);
  for (const e of all("button, a")) if (!named(e)) wrong.push("no name: " + e.outerHTML);
  for (const e of all("table")) if (!e.caption) wrong.push("no caption");
  for (const e of all("th")) if (!e.scope) wrong.push("no scope: " + e.textContent);
  for (const e of document.querySelectorAll("svg"))
    if (!e.closest("[aria-hidden=true]") && !e.getAttribute("aria-label")) wrong.push("no text: svg");
  const levels = all("main h1, main h2, main h3").map(h => +h.tagName[1]);
  levels.forEach((level, i) => { if (i && level > levels[i - 1] + 1) wrong.push("heading " + level); });
  return wrong;
}"""
# Elements that only markup of a client could have made, and addresses that only a client could have given.
MADE = (
    "main script, main img, main style, main link, main meta, iframe, object, embed, base, video, audio, math, "
    "form[action]"
)
STRANGE = (
    r"() => [...document.querySelectorAll('a')].map(a => a.getAttribute('href')).filter(h => !/^(#|api\/)/.test(h))"
)
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
WIDTHS = """() => [...document.querySelectorAll("#request figure svg > g")].map(bar =>
  [...bar.querySelectorAll("rect[class^=p-]")].reduce((sum, part) => sum + +part.getAttribute("width"), 0))"""
LISTED = "() => [...document.querySelectorAll('#requests tbody tr')].map(r => r.dataset.id)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def here() -> Iterator[Place]:
    with day.place(workers=2, PLIMSOLL_PAGE_CONTENT="true") as place:
        place.play()
        place.settled(len(day.DAY))
        yield place


@pytest.fixture(scope="module")
def shared(browser: Browser, here: Place) -> Iterator[Tab]:
    with tab(browser, here.page) as one:
        yield one


@pytest.fixture
def opened(shared: Tab) -> Iterator[Tab]:
    """The page, loaded anew in a tab that tests share: a tab of its own for each takes longer than the tests."""
    shared.lost = False
    shared.go("#/?flat=1")
    shared.live()
    yield shared
    faults, shared.faults = shared.faults, []
    assert faults == []


def figure(n: int) -> str:
    return f"{n:,}"


# Views


def test_the_overview_shows_the_figures_of_the_api(opened: Tab, here: Place) -> None:
    opened.at("#/?flat=1&period=all")
    expect(opened.find("#period button[aria-pressed=true]")).to_have_text("since the start")
    told = here.read("/api/overview")
    requests, tokens = told["requests"], told["tokens"]
    shown = {
        name: opened.find(f"#tile-{name} dd").first.inner_text() for name in ("requests", "cut", "healed", "unfit")
    }
    assert shown == {name: figure(requests["total" if name == "requests" else name]) for name in shown}
    assert f"{figure(requests['measured'])} measured" in opened.text("#tile-requests")
    saved = told["periods"]["all"]["saved"]
    assert opened.text("#tile-saved").split("\n")[1].replace(",", "").startswith(str(saved)[:2])
    assert saved <= tokens["prompt"]
    for name in ("prompt", "saved", "money", "own"):
        assert re.search(r"\d", opened.text(f"#tile-{name}"))
    assert f"{requests['total']} requests since" in opened.text("#summary")


def test_the_histograms_show_the_load_before_and_after(opened: Tab, here: Place) -> None:
    opened.at("#/?flat=1&period=all")
    load = here.read("/api/overview")["load"]
    edge = load["bounds"].index(1.0) + 1
    over, after = sum(load["before"][edge:]), sum(load["after"][edge:])
    assert over > 0
    expect(opened.find("#loads svg[role=img]")).to_have_attribute(
        "aria-label", re.compile(f"{over} requests? of .* {after} ")
    )
    assert opened.find("#loads tbody tr").count() == len(load["before"])
    heights = opened.ask(
        "() => [...document.querySelectorAll('#loads rect.before')].map(r => +r.getAttribute('height'))"
    )
    assert [h > 0 for h in heights] == [n > 0 for n in load["before"]]


def test_models_have_their_window_its_source_and_their_load(opened: Tab, here: Place) -> None:
    opened.find("nav >> text=Models").click()
    told = here.read("/api/overview")["models"]
    rows = opened.find("#models tbody tr")
    expect(rows).to_have_count(len(told))
    shown = {line.split("\n")[0].strip(): line for line in rows.all_inner_texts()}
    for model in told:
        assert figure(model["requests"]) in shown[model["model"]]
    assert "8,192" in shown["gpt-4"] and "litellm’s table" in shown["gpt-4"]


def test_the_system_view_shows_upstreams_endpoints_redis_and_settings(opened: Tab, here: Place) -> None:
    opened.find("nav >> text=System").click()
    expect(
        opened.find(
            "#upstreams tbody tr",
        ).filter(has_text=day.DOWN)
    ).to_contain_text("down")
    expect(opened.find("#upstreams tbody tr").filter(has_text="default")).not_to_contain_text("down")
    told = here.read("/api/overview")
    for one in told["unfitted"]:
        expect(opened.find("#unfitted tbody tr").filter(has_text=one["endpoint"]).first).to_contain_text(
            str(one["requests"])
        )
    expect(opened.find("#state")).to_contain_text("2 of 2")
    expect(opened.find("#state")).to_contain_text(told["version"]["plimsoll"])
    expect(opened.find("#settings tbody tr").filter(has_text="PLIMSOLL_WORKERS")).to_contain_text("2")
    expect(opened.find("#settings details tbody tr").first).to_be_hidden()
    assert "sk-day" not in opened.text()


def test_the_terms_explain_every_word_that_the_other_views_use(opened: Tab) -> None:
    opened.find("nav >> text=Terms").click()
    explained = set(opened.find("#terms dt").all_inner_texts())
    for view in ("#/", "#/models"):
        opened.at(view)
        expect(opened.find("main > section:not([hidden]) h1")).to_have_count(1)
    for word in (
        "window",
        "load",
        "the line",
        "margin",
        "step",
        "healed",
        "own time",
        "money, net",
        "made to fit",
        "recalled",
    ):
        assert any(word in term for term in explained)


SIZES = [(360, "light"), (360, "dark"), (740, "light"), (920, "light"), (1000, "dark"), (1600, "light"), (1600, "dark")]


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_no_view_scrolls_sideways_on_a_phone_or_on_a_wall(
    browser: Browser, here: Place, width: int, scheme: Any
) -> None:
    detail = f"#/requests/{here.entry(CUT[0])['id']}"
    talk = f"#/conversations/{here.entry(TURNS[0])['conversation']}"
    with tab(browser, here.page, width, color_scheme=scheme) as one:
        one.go()
        one.live()
        for view in (*VIEWS, detail, talk):
            one.at(view)
            expect(one.find("main > section:not([hidden]) h1")).to_have_count(1)
            if view == detail:
                expect(one.find("#request figure svg")).to_be_visible()
            inner, whole = one.ask("() => [innerWidth, document.documentElement.scrollWidth]")
            assert whole <= inner == width, view
        dark = one.ask("() => getComputedStyle(document.documentElement).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")


# Filters


def listed(one: Tab) -> list[str]:
    return one.find("#requests tbody tr").all_inner_texts()


def test_filters_choose_by_result_model_endpoint_and_text(opened: Tab, here: Place) -> None:
    expect(opened.find("#requests tbody tr")).to_have_count(100)
    opened.find("#f-result").select_option("healed")
    expect(opened.find("#requests tbody tr")).to_have_count(len(HEALED))
    assert all("healed" in line for line in listed(opened))
    opened.find("#f-endpoint").select_option("messages")
    expect(opened.find("#requests tbody tr")).to_have_count(1)
    assert "claude-sonnet-4-5" in listed(opened)[0]
    assert opened.ask("() => location.hash") == "#/?result=healed&endpoint=messages&flat=1"
    opened.page.reload()
    expect(opened.find("#requests tbody tr")).to_have_count(1)
    opened.find("#f-clear").click()
    expect(opened.find("#requests tbody tr")).to_have_count(100)
    opened.find("#f-result").select_option("unfit")
    expect(opened.find("#requests tbody tr")).to_have_count(1)
    opened.find("#f-clear").click()
    opened.find("#f-model").select_option("llama3.2:3b")
    assert all("llama3.2:3b" in line for line in listed(opened))
    opened.find("#f-clear").click()
    opened.find("#f-text").fill("prune_history claude")
    expect(opened.find("#requests tbody tr").first).to_contain_text("prune_history")
    assert all("claude" in line for line in listed(opened))
    opened.find("#f-text").fill("no such thing")
    expect(opened.find("#requests-none")).to_be_visible()


def test_older_requests_are_fetched(opened: Tab) -> None:
    expect(opened.find("#requests tbody tr")).to_have_count(100)
    opened.find("#older").click()
    expect(opened.find("#requests tbody tr")).to_have_count(200)
    ids = opened.ask(LISTED)
    assert len(ids) == len(set(ids))


def test_every_request_that_is_kept_is_found_by_its_number(browser: Browser) -> None:
    with day.place() as alone:  # the stream begins with the unfit request and the newest others
        alone.play((REST[0], *SMALL[:150]))
        alone.settled(151)
        kept = [one["id"] for one in alone.read("/api/requests?limit=1000")["requests"]]
        with tab(browser, alone.page) as opened:
            opened.go("#/?flat=1")
            opened.find("#f-text").fill("#30")
            expect(opened.find(f"#requests tbody tr[data-id='{kept[-30]}']")).to_be_visible()
            opened.find("#f-clear").click()
            opened.find("#older").click()
            expect(opened.find("#requests tbody tr")).to_have_count(len(kept))
            assert opened.ask(LISTED) == kept
            opened.ask(HIDE, True)
            alone.play(SMALL[:150])  # more than the stream tells of when it comes back
            opened.ask(HIDE, False)
            expect(opened.find("#newer")).to_have_text("150 new requests: show")
            opened.find("#newer").click()
            newest = [one["id"] for one in alone.read("/api/requests?limit=200")["requests"]]
            assert opened.ask(LISTED) == newest


def test_the_list_is_reached_from_a_note_and_shows_only_what_changed(opened: Tab) -> None:
    for _ in range(2):  # the second time the address is the same
        opened.ask("() => scrollTo(0, 0)")
        opened.find("#notes a:text('Show')").first.click()
        expect(opened.find("#requests-title")).to_be_focused()
        expect(opened.find("#requests-title")).to_be_in_viewport()
        expect(opened.find("#requests tbody tr")).to_have_count(1)
    assert not opened.find("#f-group").is_checked(), "a link leaves what it does not name"
    opened.find("#f-clear").click()
    opened.find("#f-changed").check()
    expect(opened.find("#requests tbody tr")).to_have_count(len(CUT) + len(HEALED) + len(TURNS))


# Before and after


@pytest.mark.parametrize("scene", [*CUT, *HEALED], ids=lambda scene: scene.name)
def test_a_request_is_shown_before_and_after(opened: Tab, here: Place, scene: Scene) -> None:
    told = here.entry(scene)
    opened.at(f"#/requests/{told['id']}")
    expect(opened.find("#request h1")).to_contain_text("healed" if scene.result == "healed" else "made to fit")
    bars = opened.find("#request figure svg[role=img]")
    label = re.compile(r"Before: ([\d,]+) tokens, .* of ([\d,]+)\. Sent: ([\d,]+) tokens")
    expect(bars).to_have_attribute("aria-label", label)
    found = label.match(str(bars.get_attribute("aria-label")))
    assert found is not None
    before, window, sent = (int(figure.replace(",", "")) for figure in found.groups())
    assert (before, window) == (sum(told["parts"]["before"].values()), told["window"])
    assert told["prompt_sent"] <= sent <= sum(told["parts"]["sent"].values())
    drawn = opened.ask(WIDTHS)
    assert drawn[0] / drawn[1] == pytest.approx(before / sent, rel=0.03)
    opened.find("label:text('One row for each message') input").check()
    table = opened.find("table:has(caption:text('Messages'))")
    rows = table.locator("tbody tr").all_inner_texts()
    for row, line in zip(told["rows"], rows, strict=False):
        place = "added" if row["index"] is None else f"#{row['index']}"
        assert line.startswith(place) and row["role"] in line and row["state"] in line and row["why"] in line
        assert figure(row["tokens"]) in line and figure(row["tokens_sent"]) in line
    assert figure(told["prompt"]) in rows[-1] and figure(told["prompt_sent"]) in rows[-1]
    steps = opened.find("table:has(caption:text('Steps'))").inner_text()
    assert all(step["step"] in steps for step in told["steps"])
    refusals = opened.find("#part-refusals-met")
    assert refusals.count() == (scene.result == "healed")
    assert f"{told['usage']['prompt']:,} tokens" in opened.text("#request")
    link = opened.find("#request a:text('JSON')").get_attribute("href")
    assert here.read(f"/{link}")["id"] == told["id"]


def test_what_was_cut_is_struck_through(opened: Tab, here: Place) -> None:
    told = here.entry(CUT[0])
    opened.at(f"#/requests/{told['id']}")
    opened.find("label:text('Only what changed') input").check()
    opened.find("label:text('One row for each message') input").check()
    table = opened.find("table:has(caption:text('Messages'))")
    expect(table.locator("tbody tr").first).not_to_contain_text("kept")
    table.locator("button:text('show its text')").first.click()
    dropped = next(row["index"] for row in told["rows"] if row["state"] != "kept")
    expect(table.locator("del").first).to_have_text(re.compile(re.escape(BODY["messages"][dropped]["content"][:40])))  # type: ignore[index]
    table.locator("button:text('hide its text')").click()
    expect(table.locator("del")).to_have_count(0)


def test_a_request_that_could_not_fit_says_what_takes_the_room(opened: Tab, here: Place) -> None:
    told = here.entry(REST[0])
    opened.at(f"#/requests/{told['id']}")
    expect(opened.find("#request h1")).to_contain_text("could not fit")
    expect(opened.find("table:has(caption:text('Tokens of each part')) tr").filter(has_text="tools")).to_contain_text(
        figure(told["parts"]["before"]["tools"])
    )


def test_an_unfit_request_says_that_nothing_was_sent_and_what_takes_most_room(opened: Tab, here: Place) -> None:
    told = here.entry(REST[0])
    opened.at(f"#/requests/{told['id']}")
    expect(opened.find("#request .lead")).to_contain_text(
        f"most room is taken by: tools, {figure(told['parts']['sent']['tools'])}"
    )
    expect(opened.find("#request")).to_contain_text("nothing was sent")
    assert "Nothing was counted" not in opened.text("#request")
    assert opened.find("#request th:text-is('sent')").count() == 0
    assert opened.find("#request th:text-is('after all steps')").count() == 2
    expect(opened.find("[aria-labelledby=part-what-makes-room] button")).to_have_text("Open in Inspect")
    assert opened.find("text=How to keep what was cut").count() == 0


def test_a_reply_without_a_limit_that_gets_less_than_is_reserved_is_told(opened: Tab, here: Place) -> None:
    entries = [here.entry(scene) for scene in (*CUT, *HEALED)]
    lefts = [one["window"] - sum(n for part, n in one["parts"]["sent"].items() if part != "reply") for one in entries]
    told, left = next((one, n) for one, n in zip(entries, lefts, strict=True) if n < one["parts"]["sent"]["reply"])
    sent = told["parts"]["sent"]
    expect(opened.find(f"#requests tr[data-id='{told['id']}']")).to_contain_text("→ 100 %")
    opened.at(f"#/requests/{told['id']}")
    expect(opened.find("table:has(caption:text('Steps'))")).to_contain_text(
        f"reply {figure(sent['reply'])} → {figure(left)}"
    )


def test_a_request_that_is_no_longer_kept_says_so(opened: Tab) -> None:
    opened.lost = True  # the 404 is on the console
    opened.at("#/requests/0-none-7")
    expect(opened.find("#request")).to_contain_text("no longer kept")


# Who, when, which conversation


def test_the_line_at_the_top_says_pod_upstream_mode_ladder_and_cap(opened: Tab, here: Place) -> None:
    told = here.read("/api/overview")
    for word in (told["pod"], "2 of 2", told["holds"]["upstream"], "fit", "default", "none"):
        expect(opened.find("#strip")).to_contain_text(word)
    opened.find("#strip .term:text('cap')").focus()
    tip = opened.ask("() => getComputedStyle(document.activeElement, '::after').content")
    assert "CONTEXT_TOTAL_TOKEN_LIMIT" in tip, "a term is explained where it stands, by the keyboard too"
    assert opened.ask("() => getComputedStyle(document.activeElement, '::after').display") == "block"


SHOWN = "() => getComputedStyle(document.querySelector(\"#strip .term\"), '::after').display"


def test_an_explanation_goes_when_a_finger_scrolls(browser: Browser, here: Place) -> None:
    with tab(browser, here.page, 360, 740, has_touch=True, is_mobile=True) as phone:
        phone.go()
        phone.live()
        term = phone.find("#strip .term").first
        term.tap()
        assert phone.ask(SHOWN) == "block"
        phone.ask("() => scrollTo(0, 400)")
        phone.page.wait_for_function(f"() => ({SHOWN})() === 'none'")
        phone.ask("() => scrollTo(0, 0)")
        assert phone.ask(SHOWN) == "none"


def test_callers_have_their_use_their_money_and_their_limit(opened: Tab, here: Place) -> None:
    opened.find("#period button:text('5 minutes')").click()
    callers = {one["caller"]: one for one in here.read("/api/overview")["periods"]["5m"]["callers"]}
    row = opened.find("#callers tbody tr").filter(has_text="team-a")
    expect(row).to_contain_text("window of at most 3,000 tokens")
    expect(row).to_contain_text(figure(callers["team-a"]["prompt"]))
    expect(row).to_contain_text("$")
    left = r"small: [\d,]+ tokens of 20,000 tokens used, [\d,]+ tokens left; anew in \d+ (hour|minute)s?"
    expect(row).to_contain_text(re.compile(left))
    first = opened.find("#callers tbody th").first
    expect(first).to_have_text("without a name")
    row.locator("button").click()
    expect(opened.find("#f-caller")).to_have_value("team-a")
    expect(opened.find("#requests tbody tr")).to_have_count(len(TURNS))
    assert all("team-a" in line for line in listed(opened))
    assert "caller=team-a" in opened.ask("() => location.hash")


def test_each_period_has_its_figures(opened: Tab, here: Place) -> None:
    for value, name in (("5m", "5 minutes"), ("1h", "1 hour"), ("all", "since the start")):
        opened.find(f"#period button:text('{name}')").click()
        expect(opened.find("#period button[aria-pressed=true]")).to_have_text(name)
        told = here.read("/api/overview")["periods"][value]
        expect(opened.find("#tile-requests dd").first).to_have_text(figure(told["requests"]))
    label = opened.find("#minutes svg").get_attribute("aria-label")
    assert label is not None and figure(sum(line[1] for line in told_minutes(here))) in label


def told_minutes(here: Place) -> list[list[int]]:
    minutes: list[list[int]] = here.read("/api/overview")["periods"]["minutes"]
    return minutes


def test_bins_of_load_are_drawn_to_scale(opened: Tab, here: Place) -> None:
    opened.at("#/?flat=1&period=all")
    bounds = here.read("/api/overview")["load"]["bounds"]
    wide = opened.ask(
        "() => [...document.querySelectorAll('#loads rect.before')].map(r => +r.getAttribute('width') + 1)"
    )
    scaled = [high - low for low, high in zip([0, *bounds], bounds, strict=False) if high <= 2]
    for load, drawn in zip(scaled, wide, strict=False):
        assert drawn / wide[0] == pytest.approx(load / bounds[0], rel=0.05)


def test_a_conversation_is_one_line_that_opens_and_says_what_it_lost_since_when_and_what_came_back(
    opened: Tab, here: Place
) -> None:
    name = here.entry(TURNS[0])["conversation"]
    told = here.read(f"/api/conversations/{name}")
    assert len(told["requests"]) == len(TURNS) and told["gone"] and told["back"]
    assert {one["worker"] for one in told["requests"]} <= {0, 1}
    opened.at("#/?caller=team-a&flat=0")
    lines = opened.find("#requests tbody tr")
    expect(lines).to_have_count(1)
    expect(lines.first).to_contain_text(f"conversation, {len(TURNS)}")
    opened.find("#requests tr.group button").focus()
    opened.page.keyboard.press("Enter")
    expect(opened.find("#requests tr.member")).to_have_count(len(TURNS))
    expect(opened.find("#requests tr.panel")).to_contain_text(f"Not sent now: {told['gone']} messages")
    expect(opened.find("#requests tr.panel")).to_contain_text("Came back: #")
    opened.find("#requests tr.group a").click()
    expect(opened.find("#conversation h1")).to_contain_text("team-a")
    rows = opened.find("table:has(caption:text('not sent whole')) tbody tr")
    expect(rows.filter(has_text="came back").first).to_contain_text("dropped at")
    expect(rows.filter(has_text="no room").first).to_contain_text("since #")
    expect(opened.find("table:has(caption:text('Requests of this')) tbody tr")).to_have_count(len(TURNS))
    opened.page.keyboard.press("Escape")
    expect(opened.find("#requests tr.group button")).to_be_focused()


def test_what_was_only_planned_was_sent_whole_and_the_error_that_it_got_is_named(opened: Tab, here: Place) -> None:
    told = here.entry(OBSERVED)
    assert told["planned"] and told["status"] == 400
    conversation = here.read(f"/api/conversations/{told['conversation']}")
    went = [one for one in conversation["requests"] if one["messages_sent"] < one["messages"]]
    assert went and conversation["requests"][0]["id"] == told["id"] and conversation["gone"] == 0
    opened.at(f"#/?model={told['model']}&flat=0")
    line = opened.find("#requests tr.group").filter(has_text="conversation").first
    expect(line).to_contain_text("unchanged, error")
    expect(line).to_contain_text("every message is sent now")
    line.locator("button").click()
    expect(opened.find("#requests tr.panel")).to_contain_text("No message is missing now.")


def test_the_way_back_leads_to_the_list_as_it_was_left(opened: Tab, here: Place) -> None:
    opened.at("#/?flat=1")
    opened.find("#f-text").fill("prune_history claude")
    expect(opened.find("#back")).to_have_attribute("href", re.compile("text=prune_history"))
    opened.find("#requests tbody tr a").first.click()
    expect(opened.find("#request h1")).to_be_visible()
    opened.find("#back").click()
    expect(opened.find("#f-text")).to_have_value("prune_history claude")


def test_equal_requests_are_one_line(opened: Tab, here: Place) -> None:
    opened.at("#/?flat=0&model=gpt-4o-mini&result=passed")
    alike = opened.find("#requests tr.group").filter(has_text="alike")
    expect(alike.first).to_contain_text("unchanged")
    opened.find("#f-group").uncheck()
    expect(opened.find("#requests tr.group")).to_have_count(0)
    assert "flat=1" in opened.ask("() => location.hash")


def test_how_to_keep_what_was_cut_is_copied(browser: Browser, here: Place) -> None:
    told = here.entry(TURNS[-1])
    lost = [row["index"] for row in told["rows"] if row["state"] in ("dropped", "recalled")]
    with tab(browser, here.page, permissions=["clipboard-read", "clipboard-write"]) as one:
        one.go(f"#/requests/{told['id']}")
        one.live()

        def copied() -> str:
            return str(one.ask("() => navigator.clipboard.readText()"))

        one.find("button:text-is('copy as pins')").first.click()
        expect(one.find("#copied")).to_contain_text("x-plimsoll-pin: ")
        assert re.fullmatch(r"x-plimsoll-pin: \d+(,\d+)+", copied())
        one.find("button:text('Copy pins of all')").click()
        expect(one.find("#copied")).to_contain_text(f"{lost[0]},")
        assert copied() == f"x-plimsoll-pin: {','.join(map(str, lost))}"
        one.find("button:text('Copy as curl')").click()
        expect(one.find("#copied")).to_contain_text("curl")
        assert (
            copied().startswith(f"curl 'http://{LOCALHOST}:{here.port}{CHAT}'") and "-H 'x-plimsoll-pin: " in copied()
        )
        one.find("#copied button").click()
        one.find("button:text('Open in Inspect')").click()
        expect(one.find("#i-body")).to_have_value(re.compile("We keep the log"))
        one.find("#i-pins").fill(str(lost[0]))
        one.find("#inspect-form button.main").click()
        row = one.find("#inspection table:has(caption:text('Messages')) tbody tr").first
        expect(row).to_contain_text("pinned")
        expect(row).to_contain_text(f"#{lost[0]}")


def test_what_was_cut_names_each_step_and_its_tokens(opened: Tab, here: Place) -> None:
    told = here.entry(CUT[1])
    opened.at(f"#/requests/{told['id']}")
    opened.find("label:text('One row for each message') input").check()
    rows = opened.find("table:has(caption:text('Messages')) tbody tr").all_inner_texts()
    for row, line in zip(told["rows"], rows, strict=False):
        for touch in row["steps"]:
            assert f"{touch['step']} {'−' if touch['tokens'] < 0 else '+' if touch['tokens'] else '±'}" in line
            assert figure(abs(touch["tokens"])) in line


# Live


def test_new_requests_wait_behind_a_button_and_nothing_moves(opened: Tab, here: Place) -> None:
    opened.find("#f-model").select_option("gpt-4o-mini")
    expect(opened.find("#older")).to_be_hidden()  # all of them are there: those that come later come below
    before, first = listed(opened), opened.find("#requests tbody tr a").first
    first.focus()
    place = first.bounding_box()
    for _ in range(3):
        here.send(SHORT)
    expect(opened.find("#newer")).to_have_text("3 new requests: show")
    assert listed(opened) == before
    box = first.bounding_box()
    assert place and box and box["x"] == place["x"] and opened.ask("() => document.activeElement.dataset.key")
    opened.find("#newer").click()
    expect(opened.find("#newer")).to_be_hidden()
    assert listed(opened)[3:] == before[: len(listed(opened)) - 3]


def test_a_wall_follows_by_itself(opened: Tab, here: Place) -> None:
    opened.at("#/?model=gpt-4o-mini&follow=1&flat=1")
    expect(opened.find("#f-follow")).to_be_checked()
    newest = opened.find("#requests tbody tr").first.get_attribute("data-id")
    here.send(SHORT)
    expect(opened.find("#requests tbody tr").first).not_to_have_attribute("data-id", str(newest))
    expect(opened.find("#newer")).to_be_hidden()


def test_figures_change_while_one_looks(opened: Tab, here: Place) -> None:
    before = opened.find("#tile-requests dd").first.inner_text()
    here.send(SHORT)
    expect(opened.find("#tile-requests dd").first).not_to_have_text(before)


def test_two_workers_are_one_page(opened: Tab, here: Place) -> None:
    requests = here.read("/api/requests?limit=1000")["requests"]
    assert {one["worker"] for one in requests} == {0, 1}
    assert here.read("/api/overview")["requests"]["total"] >= len(day.DAY)
    opened.find("#older").click()
    shown = opened.ask(LISTED)
    assert {one["worker"] for one in requests if one["id"] in shown} == {0, 1}


def test_a_hidden_tab_holds_no_stream(opened: Tab) -> None:
    opened.ask(HIDE, True)
    expect(opened.find("#connection")).to_have_text("paused while hidden")
    opened.ask(HIDE, False)
    opened.live()


# Other things to do


def test_what_was_learned_is_forgotten_after_a_second_press(opened: Tab, here: Place) -> None:
    opened.find("nav >> text=Models").click()
    rows = opened.find("#learned tbody tr").filter(has_text=day.UNLOADED)
    expect(rows.first).to_contain_text("4,096")
    expect(rows.first).to_contain_text("refusal")
    button = rows.locator("button").first
    button.click()
    expect(button).to_have_text("Really forget?")
    button.click()
    expect(opened.find("#forgotten")).to_contain_text("Forgotten")
    expect(rows.filter(has_text="the window is")).to_have_count(0)
    eventually(lambda: not limits(here, day.UNLOADED), 30)


def limits(here: Place, model: str) -> list[Any]:
    """What is learned of the limits of a model, as the page's API tells."""
    return [limit for one in here.read("/api/overview")["learned"] if one["model"] == model for limit in one["limits"]]


@pytest.mark.parametrize("scene", CUT[:5], ids=lambda scene: scene.name)
def test_a_pasted_body_of_any_api_is_inspected(opened: Tab, here: Place, scene: Scene) -> None:
    opened.find("nav >> text=Inspect").click()
    opened.find("#i-body").fill(json.dumps(scene.body))
    opened.find("#i-path").select_option(scene.path)
    opened.find("#i-window").fill(str(scene.window or 3_900))
    before = here.read("/api/overview")["requests"]["total"]
    opened.find("#inspect-form button.main").click()
    expect(opened.find("#inspection h2").first).to_contain_text("fits after")
    expect(opened.find("#inspection figure svg[role=img]")).to_be_visible()
    assert re.search(r"(shortened|dropped|excerpted|recalled)", opened.text("#inspection"))
    assert here.read("/api/overview")["requests"]["total"] == before


def test_a_body_is_recognised_and_a_wrong_one_is_told(opened: Tab) -> None:
    opened.find("nav >> text=Inspect").click()
    opened.find("#i-example").click()
    opened.find("#inspect-form button.main").click()
    expect(opened.find("#inspection h2").first).to_contain_text("fits after")
    opened.lost = True  # the 400 is on the console
    opened.find("#i-body").fill("{no JSON")
    opened.find("#inspect-form button.main").click()
    expect(opened.find("#inspection [role=alert]")).to_be_visible()


# People


def test_everything_is_reached_with_the_keyboard_alone(opened: Tab, here: Place) -> None:
    keyboard = opened.page.keyboard
    keyboard.press("Tab")
    assert opened.ask("() => document.activeElement.className") == "skip"
    keyboard.press("Enter")
    assert opened.ask("() => document.activeElement.id") == "main"
    for _ in range(120):
        keyboard.press("Tab")
        where = opened.ask("() => document.activeElement.closest('#requests') !== null")
        outline = opened.ask("() => getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", opened.ask("() => document.activeElement.outerHTML")
        if where:
            break
    key = opened.ask("() => document.activeElement.dataset.key")
    keyboard.press("Enter")
    expect(opened.find("#request h1")).to_be_focused()
    keyboard.press("Escape")
    expect(opened.find(f'#requests a[data-key="{key}"]')).to_be_focused()
    opened.find("#f-result").focus()
    keyboard.type("healed")
    expect(opened.find("#requests tbody tr")).to_have_count(len(HEALED))


def test_a_screen_reader_finds_landmarks_names_and_headers(opened: Tab, here: Place) -> None:
    pages = [*VIEWS, f"#/requests/{here.entry(CUT[0])['id']}"]
    pages += [f"#/conversations/{here.entry(TURNS[0])['conversation']}"]
    assert opened.ask("() => document.documentElement.lang") == "en"
    for selector in ("header", "nav[aria-label]", "main", "footer"):
        assert opened.find(selector).count() == 1
    for view in pages:
        opened.at(view)
        expect(opened.find("main > section:not([hidden]) h1")).to_have_count(1)
        wrong = opened.ask(NAMELESS)
        assert wrong == [], view
    assert opened.find("[aria-live=polite]").count() >= 2 and opened.find("#connection[role=status]").count() == 1


def test_it_works_behind_a_path_prefix(browser: Browser, here: Place) -> None:
    with tab(browser, here.page) as one:
        pattern = re.compile(re.escape(here.page) + "/behind/a/prefix/")
        one.page.route(pattern, lambda route: route.continue_(url=route.request.url.replace("/behind/a/prefix", "")))
        one.go("behind/a/prefix/#/")
        one.live()
        expect(one.find("#requests tbody tr").first).to_be_visible()


# Attacks


def test_200_hostile_texts_in_every_field_stay_texts(browser: Browser, here: Place) -> None:
    texts = payloads()
    assert len(texts) == len(set(texts)) == 200
    with tab(browser, here.page) as one:
        one.go()
        one.live()
        one.find("#f-follow").check()
        for i, text in enumerate(texts):
            named = {"x-plimsoll-ladder": plain_header(text)} if i % 2 else {}  # the proxy rejects an unknown ladder
            sender = {day.TEAM: plain_header(text)} if i % 3 == 0 else {}
            for _ in range(1 if i % 10 else 2):  # a conversation of two requests
                here.post(CHAT, hostile(i, text), {"x-request-id": plain_header(text), **named, **sender})
        newest = here.read("/api/requests?limit=220")["requests"]
        cut = [entry["id"] for entry in newest if entry["has_rows"]][:12]
        assert len(cut) == 12
        names = {entry["conversation"] for entry in newest if entry["id"] in cut}
        talks = [f"#/conversations/{name}" for name in sorted(names)]
        for address in ("#/?follow=1", "#/models", "#/system", *talks, *(f"#/requests/{ident}" for ident in cut)):
            one.at(address)
            expect(one.find("main > section:not([hidden]) h1")).to_have_count(1)
            if "requests" in address:
                one.find("label:text('All texts') input").check()
                one.find("button:text('Copy as curl')").click()
                expect(one.find("#copied")).to_contain_text("curl")
        one.find("#copied button").click()
        one.find("button:text('Open in Inspect')").click()
        one.find("#inspect-form button.main").click()
        expect(one.find("#inspection h2").first).to_be_visible()
        one.at("#/?flat=0&period=5m")
        closed = one.find("#requests tr.group button[aria-expanded=false]")
        expect(closed.first).to_be_visible()
        for _ in range(min(6, closed.count())):
            closed.first.click()
        callers = set(one.find("#callers tbody th").all_inner_texts())
        assert callers <= {"team-a", "team-b", "without a name"}, "only rules name callers"
        one.at("#/")
        for text in texts[:40]:
            one.find("#f-text").fill(text.replace("\n", " ")[:40])
        one.find("#f-text").fill("")
        one.at("#/inspect")
        for i in (0, 1, 4, 11):
            one.find("#i-body").fill(json.dumps(hostile(i, texts[i])))
            one.find("#inspect-form button.main").click()
            expect(one.find("#inspection h2").first).to_be_visible()
        assert one.ask("() => window.hit") is None
        assert one.find(MADE).count() == 0
        assert one.ask(STRANGE) == []


def hostile(place: int, text: str) -> dict[str, Any]:
    """A request with a hostile text in every field that the page may show; every tenth is cut."""
    call = {
        "id": text[:60] or "x",
        "type": "function",
        "function": {"name": text[:60], "arguments": json.dumps({text: text})},
    }
    turns: list[Any] = [{"role": "user", "content": text, "name": text[:60]}]
    turns += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    turns += [{"role": "tool", "tool_call_id": call["id"], "content": text}]
    many = talk(110)[1:] if place % 10 == 0 else []
    return {
        "model": "gpt-4" if many else text,
        "user": text,
        "messages": [*turns, *many, {"role": "user", "content": text}],
    }


def plain_header(text: str) -> str:
    """A text as far as a header can hold it."""
    return "".join(c for c in text if " " <= c <= "~").strip()[:200] or "x"


# A proxy that is new, goes away, comes back, and asks for a token


def test_an_empty_page_says_what_to_do_and_comes_back_after_a_restart(browser: Browser) -> None:
    port, admin = reserved_port(), reserved_port()
    stop = threading.Event()
    with listening(simulator(SimulatorConfig(windows=day.WINDOWS))) as provider:
        given = {"PLIMSOLL_UPSTREAM": f"http://{LOCALHOST}:{provider}/v1", "PLIMSOLL_ADMIN_PORT": str(admin)}
        place = Place(port, admin)
        with tab(browser, place.page) as one:
            with started("serve", port, **given):
                wait_for(admin, "/readyz")
                one.go()
                one.live()
                expect(one.find("#empty pre")).to_contain_text(f"OPENAI_BASE_URL=http://{LOCALHOST}:{port}/v1")
                expect(one.find("#tiles")).to_be_hidden()
                place.send(SHORT)
                expect(one.find("#requests tbody tr")).to_have_count(1)
                expect(one.find("#empty")).to_be_hidden()
                one.lost = True
            expect(one.find("#connection")).to_contain_text("no connection")
            with started("serve", port, **given):
                wait_for(admin, "/readyz")
                one.live()
                expect(one.find("#announcement")).to_contain_text("started again")
                place.send(SHORT)
                expect(one.find("#tile-requests dd").first).to_have_text("1")
            with started("serve", port, **given, PLIMSOLL_ADMIN_TOKEN="a-token-of-the-operator"):
                wait_for(admin, "/readyz")
                expect(one.find("#token-field")).to_be_visible()
                one.find("#token-field").fill("wrong")
                one.find("#token-form button").click()
                expect(one.find("#token-wrong")).to_contain_text("not the right one")
                one.find("#token-field").fill("a-token-of-the-operator")
                one.find("#token-form button").click()
                one.live()
                with tab(browser, place.page) as other:
                    other.go("#token=a-token-of-the-operator")
                    other.live()
                    assert other.ask("() => location.href") == f"{place.page}/#/"
    stop.set()


# The newcomer


def test_the_page_alone_answers_the_newcomers_questions(opened: Tab, here: Place) -> None:
    before = here.read("/api/overview")["requests"]["total"]
    here.play(day.SMALL[:1])  # on a slow machine the day is more than five minutes ago
    here.settled(before + 1)
    for question in day.QUESTIONS:
        opened.at(question.view(here))
        for answer in question.answer(here):
            expect(opened.find("main > section:not([hidden])")).to_contain_text(answer)
