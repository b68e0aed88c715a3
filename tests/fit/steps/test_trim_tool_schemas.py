"""Descriptions of tools are shortened where tools leave the history hardly any room, and the list then stays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proxy.fit.plan import plan, start
from proxy.fit.steps import switch_model, trim_tool_schemas
from proxy.fit.steps.trim_tool_schemas import CHOSEN, Params
from proxy.model.limits import Window
from proxy.model.plan import CandidateModel, Draft, Facts, LadderStep
from proxy.model.structs import replace
from tests.makers import WordMeter, assistant, facts, ladder, prompt, system, tool_round, user, words

WINDOW = 2_000
LIMITS = {"max_tokens": 100}


def tool(name: str, size: int = 60, parameters: int = 2, **more: Any) -> dict[str, Any]:
    """A tool with a description of so many words, and parameters with descriptions of half as many."""
    properties = {
        f"p{i}": {
            "type": "string",
            "enum": ["a", "b"],
            "description": f"The {i}th value of {name}. {words(size // 2, 'W')}",
        }
        for i in range(parameters)
    }
    schema = {"type": "object", "required": ["p0"], "properties": properties}
    function = {"name": name, "description": f"Does what {name} says. {words(size, 'W')}", "parameters": schema}
    return {"type": "function", "function": function, **more}


TOOLS = [tool(f"tool_{i}", 40 + 10 * i) for i in range(8)]


def drafted(
    messages: Sequence[dict[str, Any]], tools: Any = TOOLS, window: int = WINDOW, **fields: Any
) -> tuple[Draft, Facts]:
    """What the client sent, and the facts of its request."""
    asked = prompt(messages, tools=tools, **LIMITS, **fields)
    known = facts(window, meter=WordMeter().with_fields(asked.definitions.fields))
    before = start(asked, ladder(), known)
    return before, replace(known, original=before)


def trim(messages: Sequence[dict[str, Any]], tools: Any = TOOLS, window: int = WINDOW, **params: Any) -> Draft:
    before, known = drafted(messages, tools, window)
    return trim_tool_schemas.apply(before, known, Params(**params))


def listed(draft: Draft) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(draft.definitions.fields["tools"])
    return [each["function"] for each in found]


def bare(schema: Any, named: bool = False) -> Any:
    """A schema without its descriptions."""
    if not isinstance(schema, Mapping):
        return schema
    return {k: bare(v, k == "properties") for k, v in schema.items() if named or k != "description"}


def shortened(draft: Draft, tools: Sequence[dict[str, Any]] = TOOLS) -> set[str]:
    """The names of the tools that are not as the client defines them."""
    return {new["name"] for new, old in zip(listed(draft), tools, strict=True) if new != old["function"]}


def test_what_a_call_must_agree_with_stays_and_the_history_gets_its_share() -> None:
    before, _ = drafted([user("go")])
    after = trim([user("go")])
    assert before.fixed > 0.7 * before.room >= after.fixed and after.prompt < before.prompt
    assert [bare(new) for new in listed(after)] == [bare(old["function"]) for old in TOOLS]
    assert all(new["description"].startswith("Does what") for new in listed(after))


def test_where_tools_leave_the_history_its_share_nothing_changes() -> None:
    before, known = drafted([user(words(9_000))], window=9_000)
    assert trim_tool_schemas.apply(before, known, Params()) is before
    before, known = drafted([user("go")], [])
    assert trim_tool_schemas.apply(before, known, Params()) is before


def test_no_more_is_shortened_than_the_share_needs_and_the_longest_first() -> None:
    fixed = drafted([user("go")])[0].fixed
    some = trim([user("go")], window=int(fixed / 0.7))
    assert shortened(some) and len(shortened(some)) <= 2 and "tool_7" in shortened(some)
    assert some.fixed <= 0.7 * some.room
    assert len(shortened(trim([user("go")], window=fixed))) > len(shortened(some))


def test_descriptions_of_tools_are_shortened_before_those_of_parameters() -> None:
    fixed = drafted([user("go")])[0].fixed
    after = trim([user("go")], window=int(fixed / 0.75))
    assert any(len(new["description"]) < 40 for new in listed(after))
    assert [new["parameters"] for new in listed(after)] == [old["function"]["parameters"] for old in TOOLS]


def test_called_tools_stay_whole_and_those_called_later_stay_short_until_as_much_has_come() -> None:
    run = [user("go"), *tool_round("a", words(300), "tool_7"), *tool_round("b", words(400), "tool_6")]
    first = trim(run)
    assert "tool_7" not in shortened(first) and "tool_6" not in shortened(first)
    later = [*run, *tool_round("c", words(20), "tool_5"), assistant("done"), user("more?")]
    assert listed(trim(later)) == listed(first) and "tool_5" in shortened(first)
    much = [*later, *tool_round("d", words(1_500), "tool_0")]
    assert "tool_5" not in shortened(trim(much))


def test_the_newest_question_does_not_choose_the_list() -> None:
    run = [system("Be brief."), user("go"), *tool_round("a", words(900), "tool_7")]
    lists = [listed(trim([*run, user(asked)])) for asked in ("tool_1?", words(200), "and tool_2, tool_3, now")]
    assert lists[0] == lists[1] == lists[2]


def test_parameters_lose_their_descriptions_only_where_the_request_would_be_refused() -> None:
    many = [tool(f"tool_{i}", 30, parameters=6) for i in range(8)]
    bytes_of = [len(json.dumps(bare(each))) // 4 for each in many]
    tight, tighter = (trim([user("go")], many, window) for window in (sum(bytes_of) + 900, sum(bytes_of) + 400))
    assert all("description" in p for new in listed(tight) for p in new["parameters"]["properties"].values())
    assert any("description" not in p for new in listed(tighter) for p in new["parameters"]["properties"].values())
    assert tighter.possible and all(new["description"] for new in listed(tighter))


def test_what_is_said_twice_of_parameters_of_one_name_is_said_once() -> None:
    page = {"type": "integer", "description": "The page of results to return."}
    other = {"type": "integer", "description": "Another page of results."}
    named = {"page": page, "size": page}

    def paging(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
        parameters = {"type": "object", "properties": properties}
        return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}

    tools = [paging("first", named), paging("called", named), paging("third", {**named, "page": other})]
    asked = [user("go"), *tool_round("a", words(900), "called")]
    fixed = drafted(asked, tools)[0].fixed
    after = listed(trim(asked, tools, window=fixed + 150))
    left = [[*filter(lambda key: "description" in p["properties"][key], p["properties"])] for p in map(_schema, after)]
    assert left == [["page", "size"], ["page", "size"], ["page"]]


def _schema(function: Mapping[str, Any]) -> Any:
    return function["parameters"]


def test_what_is_too_large_without_descriptions_is_trimmed_and_still_too_large() -> None:
    after = trim([user("go")], window=500)
    assert after.excess > 0 and [bare(new) for new in listed(after)] == [bare(old["function"]) for old in TOOLS]


def test_deferred_tools_stay_as_they_are() -> None:
    tools = [tool("later", 300, defer_loading=True), *TOOLS]
    after = trim([user("go")], tools)
    assert "later" not in shortened(after, tools) and shortened(after, tools)


def test_whole_tools_go_only_where_a_rule_lets_them_and_nothing_names_them() -> None:
    run = [system("Prefer tool_1."), user("Try tool_2?"), *tool_round("a", "ok", "tool_3")]
    assert len(listed(trim(run))) == len(TOOLS)
    names = [new["name"] for new in listed(trim(run, window=400, leave_out=("tool_*",)))]
    assert names == ["tool_1", "tool_2", "tool_3"]
    before, known = drafted(run, window=400, tool_choice={"type": "function", "function": {"name": "tool_5"}})
    after = trim_tool_schemas.apply(before, known, Params(leave_out=("tool_*",)))
    assert [new["name"] for new in listed(after)] == ["tool_1", "tool_2", "tool_3", "tool_5"]


def test_no_more_tools_go_than_needed_and_one_stays() -> None:
    fixed = drafted([user("go")])[0].fixed
    some = listed(trim([user("go")], window=int(fixed / 0.75), leave_out=("*",)))
    assert len(TOOLS) - 3 <= len(some) < len(TOOLS) and all(new in [t["function"] for t in TOOLS] for new in some)
    assert len(listed(trim([user("go")], window=300, leave_out=("*",)))) == 1
    marked = [{**each, "cache_control": {"type": "ephemeral"}} for each in TOOLS]
    assert len(listed(trim([user("go")], marked, window=300, leave_out=("*",)))) == len(TOOLS)


def test_the_plan_notes_what_tools_cost_less_and_a_switch_sends_them_as_they_came() -> None:
    asked = prompt([user("go"), user(words(300))], tools=TOOLS, **LIMITS)
    meter = WordMeter().with_fields(asked.definitions.fields)
    trims = LadderStep("trim_tool_schemas", lambda d, f: trim_tool_schemas.apply(d, f, Params()))
    made = plan(asked, ladder(trims), facts(WINDOW, meter=meter))
    assert [note.step for note in made.notes] == ["trim_tool_schemas"]
    assert made.notes[0].tokens_after - made.notes[0].tokens_before == made.draft.fixed - made.before.fixed < 0
    to = switch_model.Params(to=("large", "huge"))
    moves = LadderStep("switch_model", lambda d, f: switch_model.apply(d, f, to), at=0.1)
    large = CandidateModel("large", Window(90_000), lambda: meter)
    moved = plan(asked, ladder(trims, moves), facts(WINDOW, meter=meter, candidates=(large,)))
    assert not moved.draft.definitions.changed and moved.draft.fixed == moved.before.fixed
    assert [note.step for note in moved.notes] == ["switch_model"]


def test_a_trimmed_request_that_moves_is_counted_trimmed() -> None:
    asked = prompt([user("go")], tools=TOOLS, **LIMITS)
    meter = WordMeter().with_fields(asked.definitions.fields)
    before = start(asked, ladder(), facts(WINDOW, meter=meter))
    after = trim_tool_schemas.apply(before, facts(WINDOW), Params())
    moved = switch_model.move(after, CandidateModel("other", Window(WINDOW), lambda: meter))
    assert moved.fixed == after.fixed < before.fixed


def test_a_list_that_was_chosen_is_found_again() -> None:
    CHOSEN.clear()
    first = trim([user("go")])
    assert len(CHOSEN) == 1
    assert listed(trim([user("something else")])) == listed(first) and len(CHOSEN) == 1


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_the_share_of_the_history_is_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        Params(history=share)


def test_functions_of_old_clients_are_trimmed_too() -> None:
    asked = prompt([user("go")], functions=[each["function"] for each in TOOLS], **LIMITS)
    known = facts(WINDOW, meter=WordMeter().with_fields(asked.definitions.fields))
    after = trim_tool_schemas.apply(start(asked, ladder(), known), known, Params())
    assert len(after.definitions.fields["functions"]) < len(json.dumps(TOOLS)) and after.fixed <= 0.7 * after.room
