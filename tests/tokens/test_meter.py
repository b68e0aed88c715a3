"""The meter counts a request for a model, remembers it, and says how far it may be trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.fit.blocks import runs
from proxy.model.conversation import Costs, Message, Prompt
from proxy.model.limits import Correction, Corrections, CountUnit, LearnedLimits, Margin, Quality
from proxy.model.outcome import Usage
from proxy.model.ports import Meter
from proxy.model.structs import replace
from proxy.tokens.families import BUILT_IN
from proxy.tokens.formats import FORMATS
from proxy.tokens.messages import CountingRules
from proxy.tokens.meter import is_noise, meter_for, sample_of, unit_of
from tests.makers import WordMeter, assistant, prompt, system, tool_round, user
from tests.tokens.remembering import Remembering
from tests.tokens.vocabulary import write

TOOL = {"type": "function", "function": {"name": "search", "description": "Searches.", "parameters": {}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
LINK = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
PIXEL = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"},
}
CHAT = (system("Be brief."), user("How are you?"), *tool_round("1", "Fine."), assistant("Fine."), user("Good."))


def meter(
    *messages: dict[str, Any],
    model: str = "gpt-4o",
    memory: Remembering | None = None,
    learned: LearnedLimits = LearnedLimits(),  # noqa: B008
    ratio: float | None = None,
    share: float | None = None,
    offset: int = 0,
    sure: bool = True,
    **head: Any,
) -> Meter:
    if ratio is not None or offset:
        learned = replace(learned, correction=Corrections(text=Correction(ratio, share, offset, sure)))
    return meter_for(prompt(messages or CHAT, **head), model, memory or Remembering(), learned)


def total(found: Meter, asked: Prompt) -> int:
    return sum(found.fixed.values()) + sum(sum(found.costs(run)) for run in runs(asked.messages))


def message(fields: dict[str, Any]) -> Message:
    return prompt([fields]).messages[0]


def test_a_message_counted_once_is_not_counted_again() -> None:
    memory = Remembering()
    first = meter(memory=memory).costs((message(user("hello")),))
    missed = memory.missed
    assert meter(memory=memory).costs((message(user("hello")),)) == first == (5,)
    assert memory.missed == missed == 1


def test_what_the_head_costs_is_remembered_too() -> None:
    memory = Remembering()
    first = meter(memory=memory, tools=[TOOL]).fixed
    missed = memory.missed
    assert meter(memory=memory, tools=[TOOL]).fixed == first
    assert memory.missed == missed == 1
    assert meter(memory=memory, tools=[TOOL, TOOL]).fixed != first


def test_models_that_count_alike_share_what_is_remembered_and_others_do_not() -> None:
    memory = Remembering()
    once = (message(user("hello")),)
    for model in ("gpt-4o", "gpt-4.1", "openai/gpt-4.1-nano"):
        meter(model=model, memory=memory).costs(once)
    assert memory.missed == 1
    for model in ("gpt-4", "gpt-5", "claude-haiku-4-5"):
        meter(model=model, memory=memory).costs(once)
    assert memory.missed == 4


def test_images_are_remembered_apart_for_models_that_ask_different_prices() -> None:
    memory = Remembering()
    seen = prompt([user("x"), {"role": "user", "content": [PIXEL]}])
    costs = [
        meter_for(seen, model, memory).costs(seen.messages[1:])
        for model in ("gpt-4o", "gpt-4.1-nano", "gpt-4o", "gpt-4.1-mini")
    ]
    assert costs == [(259,), (4 + 4,), (259,), (4 + 3,)]


@pytest.mark.parametrize("poison", [(1, 2, 3), ()])
def test_a_remembered_value_of_another_shape_is_counted_anew(poison: tuple[int, ...]) -> None:
    memory = Remembering()
    found = meter(memory=memory)
    once = (message(user("hello")),)
    for ask in ((), once):
        missing = found.pending(ask)
        assert missing is not None
        memory.put(missing[0], poison)
        assert found.pending(ask) is not None
    assert found.costs(once) == (5,)
    assert found.fixed == {"base": 3}


def test_pending_names_the_key_and_the_bytes_until_a_block_is_counted() -> None:
    memory = Remembering()
    found = meter(memory=memory)
    block = prompt(tool_round("1", "x")).messages
    missing = found.pending(block)
    assert missing is not None
    key, material = missing
    found.costs(block)
    assert found.pending(block) is None and memory.kept[key] == found.costs(block)
    assert material.startswith(b"o200k_base|classic|") and all(m.raw in material for m in block)


def test_pending_without_messages_is_about_the_head() -> None:
    found = meter(tools=[TOOL])
    missing = found.pending(())
    assert missing is not None and b"Searches." in missing[1]
    assert found.fixed and found.pending(()) is None


def test_the_bytes_of_two_messages_are_not_taken_for_those_of_one() -> None:
    found = meter()
    both = prompt([user("a"), user("b")]).messages
    joined = replace(both[0], raw=b"".join(m.raw for m in both))
    assert found.pending(both) != found.pending((joined,))


def test_the_parts_of_the_fixed_cost_are_named_and_empty_ones_left_out() -> None:
    assert meter(user("x")).fixed == {"base": 3}
    wanted = {"type": "function", "function": {"name": "search"}}
    assert list(meter(tools=[TOOL], tool_choice=wanted, response_format=SCHEMA).fixed) == [
        "base",
        "tools",
        "tool_choice",
        "schema",
    ]


def test_an_answers_schema_makes_the_assistants_own_messages_dearer() -> None:
    said = (message(assistant("Fine.")),)
    plain = sum(meter(user("x")).costs(said))
    assert sum(meter(user("x"), response_format=SCHEMA).costs(said)) == plain + 3
    assert sum(meter(system("x"), response_format=SCHEMA).costs(said)) == plain + 4


@pytest.mark.parametrize(
    ("model", "quality"),
    [
        ("gpt-4o", Quality.EXACT),
        ("openai/gpt-5", Quality.EXACT),
        ("claude-sonnet-4-5", Quality.ESTIMATED),
        ("x", Quality.ESTIMATED),
    ],
)
def test_only_where_the_encoding_is_public_counts_are_exact(model: str, quality: Quality) -> None:
    assert meter(model=model).quality is quality


def test_a_learned_ratio_takes_the_place_of_a_guess() -> None:
    asked = prompt(CHAT)
    guess = meter(model="claude-sonnet-4-5")
    taught = meter(model="claude-sonnet-4-5", ratio=2.36)
    assert taught.quality is Quality.CALIBRATED
    assert total(taught, asked) == pytest.approx(2 * total(guess, asked), rel=0.05)
    assert taught.margin.share < guess.margin.share


def test_S2_counts_are_called_calibrated_once_enough_answers_corrected_them() -> None:
    few = meter(model="claude-sonnet-4-5", ratio=1.2, sure=False)
    assert few.quality is Quality.ESTIMATED and few.margin == meter(model="claude-sonnet-4-5").margin


def test_W3_a_learned_offset_is_counted_once_and_a_negative_one_takes_no_more_than_there_is() -> None:
    asked, plain, tools = prompt(CHAT), meter(), [TOOL]
    more = meter(offset=230)
    assert total(more, asked) == total(plain, asked) + 230 and more.fixed == {"base": 233}
    assert more.quality is Quality.CALIBRATED and more.costs(asked.messages[:1]) == plain.costs(asked.messages[:1])
    assert meter(offset=-400).fixed == {"base": 0}
    learned = LearnedLimits(correction=Corrections(tools=Correction(None, 0.0, -10)))
    with_tools = meter(learned=learned, tools=tools)
    assert sum(with_tools.fixed.values()) == sum(meter(tools=tools).fixed.values()) - 10
    assert min(with_tools.fixed.values()) >= 0
    assert (
        meter(learned=learned).fixed == plain.fixed and meter(tools=tools, offset=230).fixed == meter(tools=tools).fixed
    )


def test_W3_where_counts_are_exact_no_ratio_is_learned() -> None:
    asked = prompt(CHAT)
    assert total(meter(ratio=1.4, offset=30), asked) == total(meter(), asked) + 30
    assert meter(ratio=1.4).quality is Quality.EXACT


def test_R7_a_margin_that_usage_taught_takes_the_place_of_the_familys() -> None:
    assert meter(model="claude-sonnet-4-5", ratio=1.2, share=0.03).margin == Margin(20, 0.03)
    assert meter(model="claude-sonnet-4-5", ratio=1.2, share=0.03, sure=False).margin == Margin(20, 0.03)
    assert meter(model="claude-sonnet-4-5", ratio=1.2).margin == Margin(150, 0.10)
    assert meter(offset=230, share=0.0).margin == Margin(100, 0.0)
    assert meter(ratio=1.4, share=0.15).margin == Margin(100, 0.15)  # another model answers


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1000.0, float("nan"), float("inf")])
def test_a_ratio_that_cannot_be_true_is_not_believed(ratio: float) -> None:
    assert meter(ratio=ratio).quality is Quality.EXACT
    assert meter(model="claude-sonnet-4-5", ratio=ratio).quality is Quality.ESTIMATED


def test_what_a_refusal_taught_multiplies_every_count() -> None:
    once = (message(user("hello")),)
    taught = meter(learned=LearnedLimits(scale=2.0))
    assert taught.costs(once) == (10,) and taught.fixed == {"base": 6} and taught.text("hello") == 2
    assert taught.quality is Quality.CALIBRATED
    again = taught.scaled(1.5)
    assert again.costs(once) == (15,) and again.fixed == {"base": 9}
    assert meter().scaled(1.0).quality is Quality.EXACT


def test_what_the_upstream_counted_multiplies_every_count_and_may_have_a_margin_of_its_own() -> None:
    once = (message(user("hello")),)
    told = meter().counted(2.0)
    assert told.costs(once) == (10,) and told.fixed == {"base": 6} and told.quality is Quality.CALIBRATED
    assert told.margin == Margin(100, 0.02)
    assert meter().counted(1.0).quality is Quality.CALIBRATED
    estimate = meter(model="claude-sonnet-4-5").counted(1.1)
    assert estimate.margin == Margin(150, 0.10)
    assert meter(model="claude-sonnet-4-5").counted(1.1, Margin(7)).margin == Margin(7)


def test_usage_of_what_the_upstream_counted_teaches_the_whole_ratio() -> None:
    name, used = "claude-sonnet-4-5", Usage(2200)
    told = unit_of(meter(model=name).counted(1.1))
    assert sample_of(name, BUILT_IN.find(name), told, 2200, used) == (round(2200 / 1.1 / 1.18), 2200)


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro"])
@pytest.mark.parametrize("tail", [False, True])
def test_a_cut_text_costs_no_more_than_asked(model: str, tail: bool) -> None:
    found = meter(model=model)
    text = "One for the money, two for the show. " * 50
    for tokens in (0, 1, 7, 100):
        kept = found.cut(text, tokens, tail=tail)
        assert found.text(kept) <= tokens and (text.endswith(kept) if tail else text.startswith(kept))
    assert found.text(found.cut(text, 100)) > 90


def test_exact_counts_need_the_plain_margin_and_an_assumed_part_makes_it_wider() -> None:
    assert meter().margin == Margin(100, 0.0)
    guessed = meter({"role": "user", "content": [LINK]})
    assert guessed.quality is Quality.ESTIMATED and guessed.margin.share > 0
    known = meter(user("x"), {"role": "user", "content": [PIXEL]})
    assert known.quality is Quality.EXACT and known.margin == Margin(100, 0.0)


def test_hidden_work_of_the_host_makes_a_count_uncertain() -> None:
    assert meter(prediction={"type": "content", "content": "x"}).quality is Quality.ESTIMATED
    assert meter(tools=[{"type": "web_search"}]).quality is Quality.ESTIMATED


def test_that_a_message_holds_no_assumed_part_is_remembered() -> None:
    memory = Remembering()
    for _ in range(2):
        assert meter({"role": "user", "content": [PIXEL]}, memory=memory).quality is Quality.EXACT
    assert memory.missed == 2  # one for the head, one for the message


def test_usage_teaches_how_many_tokens_of_the_encoding_were_how_many() -> None:
    name, used = "claude-sonnet-4-5", Usage(2200)
    family, encoded = BUILT_IN.find(name), round(2000 / 1.18)
    assert sample_of(name, family, unit_of(meter(model=name)), 2000, used) == (encoded, 2200)
    corrected = unit_of(meter(model=name, ratio=1.3, offset=50))
    assert corrected == CountUnit(1.3, 50)
    assert sample_of(name, family, corrected, round(1.3 * encoded) + 50, used) == (encoded, 2200)
    scaled = meter(model=name, learned=LearnedLimits(scale=1.1))
    assert sample_of(name, family, unit_of(scaled), 2200, used) == (round(2200 / 1.18), 2200)


def test_usage_of_very_short_prompts_of_assumed_parts_or_beyond_belief_teaches_nothing() -> None:
    def told(found: Meter, counted: int = 2000, used: int = 2200, cached: int = 0) -> tuple[int, int] | None:
        return sample_of("gpt-4o", BUILT_IN.find("gpt-4o"), unit_of(found), counted, Usage(used, cached=cached))

    assert told(meter()) is not None and told(meter(), cached=2200) is not None
    assert told(meter(), counted=99, used=110) is None
    assert told(meter(), used=200_000) is None
    assert told(meter(), used=1300) is None  # a server that cut silently, a gateway that left out what it had cached
    assert told(meter(), cached=2201) is None
    online = "openai/gpt-4o:online"
    assert sample_of(online, BUILT_IN.find(online), unit_of(meter()), 2000, Usage(2200)) is None
    assert told(meter({"role": "user", "content": [LINK]})) is None
    assert told(WordMeter()) is None


def test_W15_short_prompts_teach_and_a_constant_beside_them_is_believed() -> None:
    family = BUILT_IN.find("gpt-4o")
    for counted, used in ((100, 110), (450, 488), (150, 450), (700, 300), (1_000, 600), (100, 1_900)):
        assert sample_of("gpt-4o", family, unit_of(meter()), counted, Usage(used)) == (counted, used)
    for counted, used in ((700, 299), (100, 2_001), (1_000, 599), (450, 63)):
        assert sample_of("gpt-4o", family, unit_of(meter()), counted, Usage(used)) is None


def test_of_a_model_that_is_counted_exactly_a_small_difference_is_noise() -> None:
    exact, estimated = BUILT_IN.find("gpt-4o"), BUILT_IN.find("qwen3")
    unit = CountUnit(1.0)
    assert is_noise(exact, unit, 9_000, Usage(9_024, 1)) and not is_noise(exact, unit, 9_000, Usage(9_025, 1))
    assert not is_noise(estimated, unit, 9_000, Usage(9_000, 1))


@pytest.mark.parametrize(
    "head",
    [
        {"tools": [{"type": "web_search"}]},
        {"tools": [TOOL, {"type": "code_interpreter"}]},
        {"tools": [{"type": "custom", "custom": {"name": "f"}}]},
        {"tools": [{"google_search": {}}]},
        {"web_search_options": {}},
        {"model": "gpt-4o-search-preview", "web_search_options": {}},
        {"search_parameters": {"mode": "auto"}},
        {"plugins": [{"id": "web"}]},
        {"enable_search": True},
    ],
)
def test_where_a_host_adds_what_it_found_usage_teaches_nothing(head: dict[str, Any]) -> None:
    assert unit_of(meter(**head)) is None
    assert unit_of(meter(tools=[TOOL], plugins=[], enable_search=False)) is not None


def test_a_schema_that_nests_too_deep_is_counted_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*given: object) -> tuple[int, ...]:  # how deep that is depends on the interpreter
        raise RecursionError

    monkeypatch.setitem(FORMATS, "chat", replace(FORMATS["chat"], fixed_costs=too_deep))
    schema = json.loads('{"items":' * 450 + "1" + "}" * 450)
    found = meter(user("x"), response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert found.fixed["schema"] > 900 and found.quality is Quality.ESTIMATED


def test_a_message_that_nests_too_deep_is_counted_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(messages: Sequence[Message], rules: CountingRules) -> tuple[int, ...]:
        raise RecursionError

    monkeypatch.setitem(FORMATS, "chat", replace(FORMATS["chat"], costs=too_deep))
    once = message(user("hello"))
    assert meter().costs((once,)) == (meter().text(once.raw.decode()),)


def test_encrypted_content_costs_what_its_api_says_whatever_the_factor() -> None:
    asked = replace(prompt(CHAT), costs=Costs.UNPROVABLE)
    said = (replace(asked.messages[-1], hidden=70),)
    found = meter_for(asked, "gpt-4o", Remembering(), LearnedLimits(scale=2.0))
    assert found.costs(said)[0] == found.costs(asked.messages[-1:])[0] + 70


LAZY = """
import sys
from proxy.tokens import encodings
from proxy.tokens.messages import CountingRules
from proxy.tokens.meter import meter_for
from proxy.apis.openai_chat.request import parse
class Memory(dict):
    put = dict.__setitem__
prompt = parse(b'{"model":"gpt-4o","messages":[{"role":"user","content":"x"}]}')
(message,) = prompt.messages
meter = meter_for(prompt, "gpt-4o", Memory())
meter.pending((message,)), meter.fixed, meter.quality, meter.margin
assert not encodings._loaded, "an encoding was loaded before anything was counted"
assert meter.costs((message,)) == (5,) and encodings._loaded
heavy = {"litellm", "httpx", "redis", "starlette", "prometheus_client", "requests", "asyncio"} & set(sys.modules)
assert not heavy, heavy
"""


def test_no_encoding_is_loaded_before_something_is_counted_and_no_client_library_ever() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_shares_of_a_block_add_up_whatever_the_factor() -> None:
    block: Sequence[Message] = prompt([*tool_round("1", "a b c " * 40)]).messages
    exact = meter().costs(block)
    scaled = meter(learned=LearnedLimits(scale=1.5)).costs(block)
    assert len(exact) == len(scaled) == 2 and sum(scaled) == pytest.approx(1.5 * sum(exact), abs=2)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-4o"])
def test_with_the_users_own_tokenizer_texts_are_exact_and_the_frame_is_the_familys(model: str, tmp_path: Path) -> None:
    path = str(write(tmp_path / "t.json"))

    def counted(text: str, ratio: float | None = None) -> tuple[int, Meter]:
        asked = prompt([user(text)])
        told = LearnedLimits() if ratio is None else LearnedLimits(correction=Corrections(Correction(ratio)))
        made = meter_for(asked, model, Remembering(), told, path)
        return total(made, asked), made

    (short, made), (long, other) = counted("one"), counted("one two three four")
    assert long - short == 3 and made.text("one two") == 2
    assert counted("one", ratio=2.0)[0] == short  # learned for another encoding
    assert (made.quality, made.margin, unit_of(made)) == (Quality.CALIBRATED, Margin(150, 0.05), None)
    assert other.scaled(2.0).text("one two") == 4


def test_counts_by_another_tokenizer_are_remembered_apart(tmp_path: Path) -> None:
    memory, asked = Remembering(), prompt([user("one two three")])
    first, second = (write(tmp_path / name, *more) for name, more in (("a.json", ()), ("b.json", ("five",))))
    for path in (None, str(first), str(second)):
        made = meter_for(asked, "llama-3.1-8b", memory, tokenizer=path)
        assert made.pending(asked.messages) is not None
        made.costs(asked.messages)
        assert made.pending(asked.messages) is None
