"""The screen of `plimsoll top` has the figures, fits its width, and shows no control character of a client."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from proxy.cli.picture import view
from proxy.cli.top_view import Screen, Snapshot, draw, matches
from proxy.model.outcome import Outcome
from tests.admin.test_page import asked, services
from tests.cli.admin_server import CUT, OVERVIEW, PASSED
from tests.serving import run

SNAPSHOT = Snapshot(OVERVIEW, (CUT, PASSED))
SCREEN = Screen("http://127.0.0.1:9090")


def lines(
    snapshot: Snapshot = SNAPSHOT, screen: Screen = SCREEN, width: int = 140, encoding: str = "utf-8"
) -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding, errors="strict")
    console = Console(file=file, width=width)
    console.print(draw(snapshot, screen, view(console)))
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()


def upstream(name: str, requests: int, failed: int) -> dict[str, Any]:
    """An upstream whose last requests these are, the newest of which failed."""
    last = {"requests": requests, "failed": failed, "failed_in_a_row": failed, "down": 0 < failed == requests}
    return {"name": name, "url": f"http://{name}.example/v1", "requests": 1_500, "failed": 7, "recent": last}


def text(**changes: Any) -> str:
    return "\n".join(lines(replace(SNAPSHOT, **changes)))


def test_a_wide_screen_has_all_figures() -> None:
    shown = lines()
    assert shown[0].split() == "plimsoll 0.9.0 http://127.0.0.1:9090 2 workers up 2 h 46 min".split()
    assert shown[1].split() == ("1.2k requests 3 in flight 85 cut (7 %) 4 failed 2 unfit 5 healed".split())
    assert shown[2].split() == "5.0M tokens in 4.2M sent 800k saved 1.0M read from caches $2.40 saved net".split()
    assert shown[3].split() == "0.09 ms 2.10 ms own p50, p99 900 ms 9.0 s upstream p50, p99".split()
    assert shown[6].split() == "gpt-4o 128k ██████████ 97% 100 7 2 800k".split()
    at = time.strftime("%H:%M:%S", time.localtime(CUT["at"]))
    assert shown[9].split() == (
        f"{at} fitted gpt-4o 140k 90.0k █████████▶ 112% /v1/chat/completions prune_history 820 ms".split()
    )
    assert shown[10].split()[1:5] == ["passed", "o3-mini", "512", "512"]


@pytest.mark.parametrize("width", [60, 72, 80, 99, 100, 110, 120, 129, 130, 140, 200])
def test_U13_no_line_is_wider_than_the_terminal_and_none_is_broken(width: int) -> None:
    found = lines(width=width)
    assert all(len(line.rstrip()) <= width for line in found) and len(found) == len(lines())
    shown = "\n".join(found)
    for word in ("gpt-4o", "fitted", "97%", "112%", "90.0k", "requests", "tokens in"):
        assert word in shown
    assert width < 80 or "…" not in shown


def test_a_terminal_without_unicode_gets_none() -> None:
    assert "##########" in "\n".join(lines(encoding="ascii"))


@pytest.mark.parametrize("hostile", ["\x1b[2J\x1b]0;owned\x07", "[red]x[/red]", "a\nb\tc", "\u202eevil", "x" * 500])
def test_words_of_a_client_move_no_cursor_and_are_no_markup(hostile: str) -> None:
    asked = {**CUT, "model": hostile, "model_sent": hostile, "path": hostile, "result": hostile}
    asked["steps"] = [{"step": hostile}]
    overview = {**OVERVIEW, "models": [{**OVERVIEW["models"][0], "model": hostile}]}
    for width in (60, 120):
        found = lines(Snapshot(overview, (asked,)), width=width)
        assert all(line.isprintable() and len(line.rstrip()) <= width for line in found)
        assert len(found) == len(lines(Snapshot(OVERVIEW, (CUT,)), width=width))
    if hostile.startswith("["):
        assert hostile in "\n".join(found)


def test_the_screen_has_no_more_lines_than_the_terminal() -> None:
    many = Snapshot(OVERVIEW, (CUT,) * 200)
    assert len(lines(many)) > 200
    troubles = {
        **OVERVIEW,
        **{"redis": {"configured": True, "healthy": False}, "rules": {"valid": False}, "memory": {"refused": 3}},
        **{"upstreams": [upstream(f"u{i}", 3, 3) for i in range(5)]},
    }
    for height in (14, 24, 50):
        assert len(lines(many, replace(SCREEN, height=height, keys=True))) <= height
    for height in (30, 50):
        found = lines(replace(many, overview=troubles), replace(SCREEN, height=height, keys=True))
        assert len(found) == height and found[-1].startswith("q: quit")


def test_before_the_first_answer_it_says_so() -> None:
    assert "no answer yet" in "\n".join(lines(Snapshot()))
    assert "no proxy responds" in "\n".join(lines(Snapshot(problem="no proxy responds at x")))


def test_a_proxy_that_is_gone_leaves_what_it_said() -> None:
    shown = text(problem="no proxy responds at x")
    assert "no proxy responds" in shown and "gpt-4o" in shown


def test_what_does_not_work_is_said() -> None:
    overview = {
        **OVERVIEW,
        **{"redis": {"configured": True, "healthy": False}, "rules": {"valid": False}, "memory": {"refused": 3}},
        **{"upstreams": [upstream("azure", 3, 3)], "workers": {"count": 2, "reached": 1}},
    }
    shown = text(overview=overview)
    for words in ("Redis does not", "the rules have", "3 requests were refused", "1 of them answer"):
        assert words in shown
    assert "upstream azure is down: the last 3 requests to it failed" in shown
    assert "not asked lately" not in shown and "Redis" not in text()


def budget(name: str, used: float, over: str = "fit") -> dict[str, Any]:
    return {"budget": name, "caller": "team-a", "limit": 100.0, "used": used, "over": over}


def test_a_budget_that_is_used_up_is_said() -> None:
    def shown(*budgets: dict[str, Any]) -> str:
        return text(overview={**OVERVIEW, "budgets": [*budgets]})

    assert "budget" not in shown(budget("a", 99), budget("b", 200, "observe"))
    assert "! the budget a of team-a is used up" in shown(budget("a", 100, "refuse"))
    assert "of all callers together is used up" in shown({**budget("a", 100), "caller": "all"})
    several = shown(*(budget(f"b{number}", 150) for number in range(5)))
    assert "the budget b2 of" in several and "the budget b3 of" not in several
    assert "! 2 more budgets are used up" in several
    assert "! 1 more budget is used up" in shown(*(budget(f"b{number}", 150) for number in range(4)))


def test_several_upstreams_have_a_row_each_those_that_are_down_first() -> None:
    overview = {**OVERVIEW, "upstreams": [upstream("openai", 20, 0), upstream("idle", 0, 0), upstream("azure", 1, 1)]}
    shown = [line.split() for line in lines(replace(SNAPSHOT, overview=overview))]
    head = shown.index(["upstream", "state", "requests", "failed", "address"])
    assert shown[head + 1 : head + 4] == [
        ["azure", "down", "1.5k", "7", "http://azure.example/v1"],
        ["openai", "answers", "1.5k", "7", "http://openai.example/v1"],
        ["idle", "not", "asked", "lately", "1.5k", "7", "http://idle.example/v1"],
    ]
    assert "upstream azure is down: the last request to it failed" in text(overview=overview)
    assert "answers; 2 of the last 5 failed" in text(overview={**overview, "upstreams": [upstream("a", 5, 2)] * 2})
    assert "openai" not in text(overview={**overview, "upstreams": [upstream("openai", 20, 0)]}), "the only one"


def test_an_upstream_that_is_down_is_said_from_what_the_admin_port_answers() -> None:
    async def overview() -> Any:
        made = services()
        assert made.page is not None
        for _ in range(3):
            made.page.recent.add(Outcome("chat", "upstream_error", 502))
        found = (await asked(made, "/api/overview"))[1]
        await made.close()
        return found

    assert "upstream default is down: the last 3 requests to it failed" in text(overview=run(overview()))


def test_what_is_unknown_has_no_figure() -> None:
    overview = {**OVERVIEW, "money": {"saved_net": None}, "own_seconds": None, "upstream_seconds": {"p50": None}}
    overview["models"] = []
    bare = {"id": "1", "at": 0, "result": "passed", "path": "/v1/files", "endpoint": "passthrough"}
    shown = "\n".join(lines(Snapshot(overview, (bare,))))
    assert "$" not in shown and "p50" not in shown and "window" not in shown and "/v1/files" in shown
    assert "None" not in shown


def test_without_requests_it_says_what_to_do() -> None:
    assert "point a client's base URL" in text(requests=())


def test_a_filter_leaves_what_has_all_its_words() -> None:
    assert matches(CUT, "") and matches(CUT, "GPT prune") and matches(CUT, "200") and not matches(CUT, "gpt passed")
    shown = "\n".join(lines(screen=replace(SCREEN, filter="o3", keys=True)))
    assert "o3-mini" in shown and "fitted" not in shown and "filter: o3" in shown and "q: quit" in shown
    assert "none of the last 2 requests has “x1”" in "\n".join(lines(screen=replace(SCREEN, filter="x1")))
    assert "filter: o_" in "\n".join(lines(screen=replace(SCREEN, filter="o", typing=True)))


def test_a_model_that_was_switched_is_shown_with_both_names() -> None:
    assert "gpt-4o → gpt-4.1" in text(requests=({**CUT, "model_sent": "gpt-4.1"},))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59, "59 s"), (3600, "1 h"), (90_061, "1 d 1 h"), (-5, "0 s"), (125, "2 min 5 s")],
)
def test_a_duration_has_its_two_largest_units(seconds: int, shown: str) -> None:
    overview = {**OVERVIEW, "started_at": OVERVIEW["at"] - seconds}
    assert lines(Snapshot(overview))[0].endswith(f"up {shown}")


def test_U27_the_callers_of_requests_are_shown_and_found_where_there_are_any() -> None:
    ours = [{**one, "caller": "search"} for one in SNAPSHOT.requests]
    shown = "\n".join(lines(replace(SNAPSHOT, requests=ours)))
    assert "search" in shown and "caller" in shown and "caller" not in "\n".join(lines())
    assert matches(ours[0], "search") and not matches(SNAPSHOT.requests[0], "search")
