"""Which model counts how, and what a row of families.toml may say."""

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.model.conversation import Prompt
from proxy.model.limits import Margin
from proxy.model.names import LONGEST_NAME
from proxy.tokens.families import BUILT_IN, PLAIN_TOOLS, Families, counted_with, parse_family
from proxy.tokens.images import Crops, Flat, Patches, Tiles
from proxy.tokens.meter import meter_for
from proxy.tokens.ranks import SOURCES
from proxy.tokens.recipes import HARMONY, RECIPES
from tests.tokens.remembering import Remembering

EXACT: Mapping[str, Any] = {
    "name": "mine",
    "models": ["mine-*"],
    "recipe": "harmony",
    "images": {"formula": "flat", "tokens": 9},
}
APPROXIMATE: Mapping[str, Any] = {
    "name": "mine",
    "models": ["mine-*"],
    "ratio": 2.0,
    "overhead": {"prompt": 8, "message": 4, "tools": 100, "tool_json": 3},
    "margin": {"base": 200, "share": 0.2},
    "images": {"formula": "crops"},
}


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4o", "gpt-4o"),
        ("openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("azure/GPT-4o", "gpt-4o"),
        ("chatgpt-4o-latest", "gpt-4o"),
        ("gpt-4.1", "gpt-4o"),
        ("gpt-4.5-preview", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o-mini"),
        ("gpt-4o-mini-search-preview", "search"),
        ("gpt-4o-audio-preview", "audio"),
        ("gpt-audio-mini", "audio"),
        ("gpt-4.1-nano-2025-04-14", "gpt-4.1-nano"),
        ("gpt-4", "gpt-4-0613"),
        ("gpt-4-32k-0613", "gpt-4-0613"),
        ("gpt-3.5-turbo-0613", "gpt-4-0613"),
        ("gpt-4-turbo-2024-04-09", "gpt-4-turbo"),
        ("gpt-4-0125-preview", "gpt-4-turbo"),
        ("gpt-35-turbo", "gpt-4-turbo"),
        ("gpt-3.5-turbo", "gpt-4-turbo"),
        ("o1-mini", "o1-mini"),
        ("o1-2024-12-17", "o1"),
        ("o3-mini", "o1"),
        ("o3", "o3"),
        ("o4-mini", "o4-mini"),
        ("gpt-5", "gpt-5"),
        ("gpt-5.1-chat", "gpt-5"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("gpt-5.2", "gpt-5"),
        ("gpt-5.4", "gpt-5.4"),
        ("openai/gpt-5.4-nano", "gpt-5.4"),
        ("gpt-5.10", "gpt-5.4"),
        ("gpt-6", "gpt-5.4"),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("codex-mini-latest", "codex"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss"),
        ("us.anthropic.claude-opus-4-20250514-v1:0", "claude"),
        ("anthropic/claude-3.5-sonnet", "claude-3-5-sonnet"),
        ("claude-haiku-4-5@20251001", "claude-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-4-5"),
        ("claude-sonnet-4-6", "claude-4-6"),
        ("claude-opus-4-7", "claude-opus-4-7"),
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("anthropic/claude-opus-5", "claude-opus-5"),
        ("claude-fable-5", "claude-5"),
        ("us.anthropic.claude-mythos-5-20260701-v1:0", "claude-5"),
        ("claude-of-tomorrow", "claude-5"),
        ("claude-2.1", "claude"),
        ("claude-instant-1.2", "claude"),
        ("claude-sonnet-4-0", "claude"),
        ("claude-4-opus", "claude"),
        ("claude-sonnet-5", "claude-5"),
        ("models/gemini-2.5-flash", "gemini"),
        ("google/gemini-3-flash-preview", "gemini-3"),
        ("deepseek-r1-distill-llama-70b", "deepseek-v3"),
        ("deepseek/deepseek-chat-v3.1", "deepseek-v3"),
        ("deepseek-chat", "deepseek"),
        ("deepseek-v4-flash", "deepseek"),
        ("Qwen3-1.7B-Q4_K_M", "qwen"),
        ("qwq-32b", "qwen"),
        ("mistralai/devstral-small-2507", "mistral"),
        ("open-mixtral-8x7b", "mistral"),
        ("mistral-small-latest", "mistral"),
        ("mistralai/mistral-small-3.2-24b-instruct", "mistral-open"),
        ("mistralai/devstral-small-2505:free", "devstral-open"),
        ("minimax/minimax-01", "minimax-open"),
        ("MiniMax-M1", "minimax-open"),
        ("Mistral-Small-3.2-24B-Instruct-2506-Q4_K_M", "mistral-open"),
        ("x-ai/grok-4-fast", "grok-fast"),
        ("grok-4-1-fast-non-reasoning", "grok-4-1"),
        ("grok-4", "grok-4"),
        ("grok-2-1212", "grok-2"),
        ("grok-3-mini", "grok"),
        ("meta-llama/llama-3.3-70b-instruct:free", "llama"),
        ("llama-4-scout", "llama-4"),
        ("my-own-deployment", "other"),
        ("", "other"),
        ("gpt-4o".ljust(LONGEST_NAME + 1, "x"), "other"),
        ("gpt-4-32k-0314", "gpt-4-0613"),
        ("gpt-35-turbo-16k-0613", "gpt-4-0613"),
        ("gpt-4-06130", "gpt-4-turbo"),
        ("gpt-realtime-mini", "audio"),
        ("gpt-5.1-codex-mini", "gpt-5-codex-mini"),
        ("gpt-5-nano", "gpt-5-nano"),
        ("gpt-4.1-mini", "gpt-4.1-mini"),
        ("o10-preview", "o1"),
        ("claude-opus-4-10", "claude-opus-4-8"),
        ("claude-opus-4.10-thinking", "claude-opus-4-8"),
        ("claude-opus-4-20250514", "claude"),
        ("claude-opus-4-1-20250805", "claude"),
        ("claude-4.6-opus", "claude-4-6"),
        ("mai-ds-r1", "deepseek-v3"),
        ("gemma-3-27b-it", "gemini"),
        ("google/gemma-4-31b", "gemma-4"),
        ("gemma4:e4b", "gemma-4"),
        ("mimo-v2.5", "mimo"),
        ("nvidia/nemotron-3-super", "other"),
        ("open-mistral-nemo-2407", "mistral"),
        ("ministral-8b-latest", "mistral"),
        ("voxtral-small-latest", "mistral"),
        ("codestral-2508", "mistral"),
        ("mistral-nemo", "mistral"),
        ("pixtral-large-latest", "mistral"),
        ("grok-code-fast-1", "grok-code"),
        ("glm-4.6", "glm"),
        ("llama-guard-4-12b", "llama-guard"),
        ("nous-hermes-2", "llama"),
        ("kimi-k2", "kimi"),
        ("minimax-m2", "minimax"),
        ("sonar-pro", "sonar"),
        ("amazon.nova-pro-v1:0", "nova"),
        ("command-r-plus", "command"),
    ],
)
def test_a_models_name_finds_its_row(model: str, family: str) -> None:
    assert BUILT_IN.find(model).name == family


def test_every_row_has_a_name_of_its_own_and_an_encoding_that_is_there() -> None:
    rows = BUILT_IN.rows
    assert len({family.name for family in rows}) == len(rows)
    assert {family.encoding for family in rows} == set(SOURCES)


def test_the_last_row_counts_every_model_that_no_row_matches() -> None:
    last = parse_family({**EXACT, "name": "last", "models": ["nothing"]})
    families = Families((parse_family(EXACT), last))
    assert families.find("mine-1").name == "mine"
    assert families.find("yours").name == "last"
    assert BUILT_IN.rows[-1].pattern.match("")


def test_equal_names_of_recipes_mean_equal_recipes() -> None:
    recipes = {*(family.recipe for family in BUILT_IN.rows), *RECIPES.values()}
    recipes |= {counted_with(family, "file:x").recipe for family in BUILT_IN.rows}
    assert len({recipe.name for recipe in recipes}) == len(recipes)


def test_only_openai_counts_are_exact_and_an_unknown_model_has_the_widest_share() -> None:
    exact = {family.name for family in BUILT_IN.rows if family.ratio is None}
    assert {"gpt-4o", "gpt-5", "o3", "gpt-4-0613"} <= exact and not exact & {"claude", "gpt-oss", "other"}
    assert BUILT_IN.rows[-1].margin.share == max(family.margin.share for family in BUILT_IN.rows)


def test_what_usage_has_calibrated_needs_no_wider_margin() -> None:
    found = [f.of(api) for f in BUILT_IN.rows for api in ("chat", "messages") if f.ratio is not None]
    assert all(f.calibrated.share <= f.margin.share and f.calibrated.base <= f.margin.base for f in found)


def test_W16_no_family_keeps_more_than_320_tokens_free_whatever_the_size_of_a_prompt() -> None:
    assert max(f.of(api).margin.base for f in BUILT_IN.rows for api in ("chat", "messages")) == 320


def test_W16_a_row_may_say_what_its_template_adds_where_no_system_message_begins_a_prompt() -> None:
    overhead = {**APPROXIMATE["overhead"], "no_system": 500}
    assert parse_family({**APPROXIMATE, "overhead": overhead}).recipe.no_system == 250
    with pytest.raises(ValueError, match="together"):
        parse_family({**APPROXIMATE, "overhead": {**overhead, "prompt": 401}})


def test_no_row_says_more_than_the_byte_proof_allows_for() -> None:
    figures = dict.fromkeys(("prompt", "message", "call", "tools", "forced_tools", "tool"), 1)
    messages = {**figures, "ratio": 1, "tool_json": 1, "schema": 300, "margin": {"base": 1, "share": 0.1}}
    overhead = {**APPROXIMATE["overhead"], "prompt": 600}
    assert parse_family({**APPROXIMATE, "overhead": overhead, "messages": messages}).recipe.schema == 300
    with pytest.raises(ValueError, match="together"):
        parse_family({**APPROXIMATE, "overhead": {**overhead, "prompt": 601}, "messages": messages})


def test_a_row_with_a_recipe_is_counted_exactly() -> None:
    family = parse_family({**EXACT, "encoding": "cl100k_base", "audio_per_second": 10})
    assert (family.ratio, family.factor, family.recipe, family.images) == (None, 1.0, HARMONY, Flat(9))
    assert (family.encoding, family.second) == ("cl100k_base", 10)


def test_a_row_with_a_ratio_has_its_overhead_in_the_models_own_tokens() -> None:
    family = parse_family(APPROXIMATE)
    recipe = family.recipe
    assert (family.factor, family.margin, family.images, family.second) == (2.0, Margin(200, 0.2), Crops(), 32)
    assert (recipe.base, recipe.message, recipe.result, recipe.tools, recipe.tool_json) == (4, 2, 4, 50, 1.5)


@pytest.mark.parametrize(
    ("images", "formula"),
    [
        ({"formula": "tiles", "base": 85, "tile": 170}, Tiles(85, 170)),
        ({"formula": "patches", "side": 32, "max_patches": 1536}, Patches(32, 1536)),
        ({"formula": "crops", "per_crop": 5}, Crops(5)),
    ],
)
def test_a_row_names_an_image_formula_and_its_figures(images: Any, formula: Any) -> None:
    assert parse_family({**EXACT, "images": images}).images == formula


@pytest.mark.parametrize(
    ("models", "matching", "others"),
    [
        (["mine"], ["mine", "x/MINE", "ft:mine"], ["mine-1", "my-mine"]),
        (["Mine-?[0-9]"], ["mine-x1"], ["mine-1", "mine-xx"]),
        (["a*", "*b"], ["a", "ax", "xb"], ["xa", "bx"]),
        (["v[!0-9.]*"], ["va"], ["v1", "v."]),
        (["a.b"], ["a.b"], ["axb"]),
    ],
)
def test_patterns_match_whole_names(models: list[str], matching: list[str], others: list[str]) -> None:
    families = Families((parse_family({**EXACT, "models": models}), *BUILT_IN.rows))
    assert all(families.find(name).name == "mine" for name in matching)
    assert not any(families.find(name).name == "mine" for name in others)


def test_a_pattern_with_many_stars_does_not_go_back() -> None:
    """The expression has one atomic group for each star, so a mismatch is found in one pass."""
    pattern = parse_family({**EXACT, "models": ["*a" * 90 + "b"]}).pattern
    assert pattern.pattern.count("(?>") == 89 and not pattern.match("a" * LONGEST_NAME)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("mine", "Expected `object`, got `str`"),
        ({**EXACT, "ratio": 1.2}, "needs either a recipe or a ratio"),
        ({k: v for k, v in EXACT.items() if k != "recipe"}, "needs either a recipe or a ratio"),
        ({k: v for k, v in EXACT.items() if k != "models"}, "missing required field `models`"),
        ({k: v for k, v in EXACT.items() if k != "images"}, "missing required field `images`"),
        ({k: v for k, v in APPROXIMATE.items() if k != "margin"}, "missing required field `margin`"),
        ({k: v for k, v in APPROXIMATE.items() if k != "overhead"}, "missing required field `overhead`"),
        ({**APPROXIMATE, "overhead": {"prompt": 1}}, "missing required field `message` - at `$.overhead`"),
        ({**APPROXIMATE, "overhead": {"prompt": 901, "message": 1, "tools": 1, "tool_json": 1}}, "<= 900.0"),
        ({**APPROXIMATE, "margin": {"base": 1, "share": 1.0}}, "Expected `float` < 1.0 - at `$.margin.share`"),
        ({**APPROXIMATE, "margin": {"base": 1, "shar": 0.1}}, "unknown field `shar` - at `$.margin`"),
        ({**APPROXIMATE, "ratio": 0}, "Expected `float` >= 0.25 - at `$.ratio`"),
        ({**EXACT, "colour": 1}, "unknown field `colour`"),
        ({**EXACT, "overhead": {}}, "unknown field `overhead`"),
        ({**EXACT, "name": " "}, "name and models must not be empty"),
        ({**EXACT, "models": []}, "name and models must not be empty"),
        ({**EXACT, "models": ["azure/x"]}, "models: 'azure/x' is not a name with *, ? and [...], without spaces"),
        ({**EXACT, "models": ["a b"]}, "models: 'a b' is not"),
        ({**EXACT, "models": [""]}, "models: '' is not"),
        ({**EXACT, "models": ["a[bc"]}, "models: 'a[bc' is not"),
        ({**EXACT, "models": ["a" * (LONGEST_NAME + 1)]}, "is not a name"),
        ({**EXACT, "encoding": "p50k"}, "encoding is 'p50k', must be one of o200k_base, cl100k_base"),
        ({**EXACT, "hosts": ["https://a.example"]}, "hosts: 'https://a.example' is not a name with"),
        ({**EXACT, "tools": -1}, ">= 0 - at `$.tools`"),
        ({**APPROXIMATE, "tools": 9}, "unknown field `tools`"),
        ({**EXACT, "recipe": "new"}, "recipe is 'new', must be one of classic, escaping, june-2023, "),
        ({**EXACT, "audio_per_second": -1}, ">= 0"),
        ({**EXACT, "images": {"tokens": 9}}, "images.formula is None, must be one of tiles, patches, crops, flat"),
        ({**EXACT, "images": {"formula": "flt"}}, "images.formula is 'flt', must be one of tiles"),
        ({**EXACT, "images": {"formula": "flat", "token": 9}}, "unknown field `token` - at `$.images`"),
        ({**EXACT, "images": {"formula": "patches", "side": 0, "max_patches": 1}}, ">= 1 - at `$.images.side`"),
        ({**EXACT, "images": "flat"}, "Expected `object`, got `str` - at `$.images`"),
    ],
)
def test_a_row_that_is_wrong_is_refused_with_the_reason(row: Any, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_family(row)
    assert problem in str(caught.value)


TOOL = b'[{"type":"function","function":{"name":"find","description":"Finds.","parameters":{"type":"object"}}}]'


def tools_at(host: str, model: str, api: str = "chat") -> int:
    """What a tool costs in a request for a model at a host."""
    found = meter_for(Prompt(model, (), {"tools": TOOL}, api=api), model, Remembering(), families=BUILT_IN.at(host))
    return found.fixed["tools"]


@pytest.mark.parametrize(
    ("model", "less"),
    [
        *[(f"openai/{name}", 82) for name in ("gpt-5-mini", "gpt-5-nano", "gpt-5-pro", "gpt-5.2", "gpt-5.4-nano")],
        *[("openai/gpt-5", 79), ("openai/gpt-5-codex", 79), ("openai/o4-mini", 4)],
        *[("openai/gpt-4o", 0), ("openai/gpt-4.1", 0), ("anthropic/claude-sonnet-4.5", 0), ("openai/gpt-5-chat", 0)],
    ],
)
def test_W21_tools_of_chat_cost_less_at_hosts_that_send_them_to_responses(model: str, less: int) -> None:
    for host in ("openrouter.ai", "EU.OpenRouter.ai", "ai-gateway.vercel.sh"):
        assert tools_at(host, model) == tools_at("api.openai.com", model) - less
    for other in ("", "notopenrouter.ai", "openrouter.ai.example.com"):
        assert tools_at(other, model) == tools_at("api.openai.com", model)
    assert tools_at("openrouter.ai", model, "responses") == tools_at("api.openai.com", model, "responses")


def test_a_row_with_hosts_holds_for_upstreams_with_these_alone() -> None:
    mine = parse_family({**EXACT, "models": ["*"], "hosts": ["a.example", "*.B.example"], "tools": 500})
    families = Families((mine, *BUILT_IN.rows))
    for host, name in (("a.example", "mine"), ("x.b.example", "mine"), ("b.example", "gpt-4o"), ("", "gpt-4o")):
        assert families.at(host).find("gpt-4o").name == name
    assert (mine.recipe.tools, mine.of(PLAIN_TOOLS).recipe) == (500, HARMONY)
    assert families.find("gpt-4o").name == "gpt-4o"


@pytest.mark.parametrize(
    ("model", "tokens"), [("qwen/qwen3-vl-8b-instruct", 90), ("qwen3.5:9b", 90), ("qwen2.5-vl-7b", 152)]
)
def test_W21_images_of_qwen_since_3_are_squares_of_32_to_the_nearest(model: str, tokens: int) -> None:
    assert BUILT_IN.find(model).images.cost((330, 291), False) == tokens


def test_W21_texts_of_gpt_oss_are_those_of_its_public_encoding() -> None:
    family = BUILT_IN.find("openai/gpt-oss-120b")
    assert (family.factor, family.encoding) == (1.0, "o200k_base")
