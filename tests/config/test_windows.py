from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from proxy.config.model_table import read_table
from proxy.config.rules import built_in, load_rules
from proxy.config.window_rules import WindowRules, parse_window_rules
from proxy.config.windows import CACHED_NAMES, Windows, capped, load_windows
from proxy.fit.money import Prices, Rates
from proxy.model.limits import UNKNOWN_WINDOW, Window
from tests.tokens.vocabulary import write

ROWS: dict[str, dict[str, Any]] = {
    "gpt-4": {"max_input_tokens": 8192, "max_output_tokens": 4096, "supports_function_calling": True},
    "gpt-4o": {"max_input_tokens": 128_000, "max_output_tokens": 16_384, "supports_vision": True},
    "gpt-4o-mini": {"max_input_tokens": 128_000, "max_output_tokens": 16_384},
    "azure/gpt-4o-2024-08-06": {"max_input_tokens": 120_000},
    "gpt-5": {"max_input_tokens": 272_000, "max_output_tokens": 128_000},
    "dashscope/qwen3-coder-flash": {"max_input_tokens": 997_952},
}


def made(sheet: str = "") -> Windows:
    parsed, problems = parse_window_rules(tomllib.loads(sheet), Path())
    assert problems == []
    rows = {name: {"mode": "chat", **row} for name, row in ROWS.items()}
    beside = {(pair.input, pair.output) for pair in parsed.sums}
    return Windows(parsed, read_table(json.dumps(rows).encode(), beside))


@pytest.fixture(scope="module")
def shipped() -> Windows:
    sheet, problems = parse_window_rules(tomllib.loads((built_in() / "windows.toml").read_text("utf-8")), built_in())
    assert problems == []
    return load_windows(sheet)


def test_a_model_of_the_table_is_known_from_there() -> None:
    assert made().find("gpt-4o") == Window(128_000, None, 16_384, "litellm", can=frozenset({"vision"}))


@pytest.mark.parametrize(
    "name", ["GPT-4o", "openai/gpt-4o", "x/y/gpt-4o", "openai.gpt-4o", "gpt-4o-2099-01-01", "gpt-4o-latest"]
)
def test_a_name_is_known_without_its_path_its_maker_and_its_date(name: str) -> None:
    assert made().find(name).tokens == 128_000


def test_the_row_of_the_very_name_comes_before_that_of_its_stem() -> None:
    assert made().find("azure/gpt-4o-2024-08-06").tokens == 120_000


@pytest.mark.parametrize(
    ("name", "tokens"), [("gpt-4o-mini-foo", 128_000), ("my-gpt-4-proxy", 8192), ("team:gpt-4o@prod", 128_000)]
)
def test_a_name_that_only_contains_known_ones_is_a_guess_by_the_longest_of_them(name: str, tokens: int) -> None:
    can = frozenset({"tools"}) if name == "my-gpt-4-proxy" else made().find(name).can
    assert made().find(name) == Window(tokens, source="guess", guessed=True, can=can)


@pytest.mark.parametrize("name", ["ft:gpt-4o-mini:org::id", "openai/gpt-4o:free", "gpt-4o:online", "FT:gpt-4o:a::b"])
def test_a_model_under_the_name_of_its_host_or_of_a_fine_tune_is_known(name: str) -> None:
    window = made().find(name)
    assert (window.tokens, window.guessed) == (128_000, False)


GRANITE = 'gap = [{model="granite-9-tiny", tokens=33000}, {model="granite-9-large:*", tokens=131000, max_output=500}]'


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("granite-9-medium", 33_000),
        ("ibm/granite-9.1-nano-2031-01-01", 33_000),
        ("granite-9-large-x", 131_000),
        ("granite-8", 33_000),
        ("gpt-4.7", 8192),
        ("gpt-5.7-max", 272_000),
    ],
)
def test_a_name_that_begins_as_known_ones_is_a_guess_of_the_smallest_window_of_those(name: str, tokens: int) -> None:
    assert made(GRANITE).find(name) == Window(tokens, source="guess", guessed=True)


def test_what_is_guessed_gives_way_to_a_cap_and_to_a_row_of_the_user() -> None:
    assert capped(made(GRANITE).find("granite-8"), 64_000) == Window(64_000, source="cap")
    stated = made(f'{GRANITE}\n[[window]]\nmodel = "granite-8*"\ntokens = 5000')
    assert stated.find("granite-8-b") == Window(5000, source="rules")


@pytest.mark.parametrize(
    "name", ["unknown-model", "my-gpt", "gpt-9", "gpt-4omni", "xgpt-4", "chat-9", "", "/", "-", "é", "x" * 10_000]
)
def test_what_nobody_knows_is_a_guess_of_8192(name: str) -> None:
    assert made().find(name) == Window(UNKNOWN_WINDOW, source="guess", guessed=True)
    assert not made().is_known(name)


def test_a_users_row_outranks_the_table_and_takes_from_it_what_it_does_not_say() -> None:
    windows = made('[[window]]\nmodel = "gpt-4o"\ntokens = 32000')
    assert windows.find("gpt-4o") == Window(32_000, None, 16_384, "rules", can=frozenset({"vision"}))
    assert windows.find("azure/gpt-4o-2024-08-06").tokens == 32_000


def test_a_users_row_without_a_window_only_adds_to_what_is_known() -> None:
    windows = made('[[window]]\nmodel = "*"\nmax_input = 900\nmax_output = 100\ncan = []')
    assert windows.find("gpt-4o") == Window(128_000, 900, 100, "litellm", can=frozenset())
    assert windows.find("nobody") == Window(8192, 900, 100, "guess", guessed=True, can=frozenset())


def test_a_stated_window_drops_bounds_that_do_not_go_with_it() -> None:
    beside = "beside = [{ input = 272000, output = 128000 }]\n"
    assert made(beside).find("gpt-5") == Window(400_000, 272_000, 128_000, "litellm")
    assert made(beside + '[[window]]\nmodel = "gpt-5"\ntokens = 1000000').find("gpt-5") == Window(
        1_000_000, None, 128_000, "rules"
    )
    assert made(beside + '[[window]]\nmodel = "gpt-5"\ntokens = 50000').find("gpt-5") == Window(
        50_000, None, None, "rules"
    )


def test_of_users_rows_the_first_that_matches_wins() -> None:
    windows = made('window = [{model="gpt-4?", tokens=1}, {model="gpt-4o", tokens=2}, {model="gpt-4o", tokens=3}]')
    assert windows.find("gpt-4o").tokens == 1
    again = made('window = [{model="gpt-4o", tokens=2}, {model="gpt-4?", tokens=1}, {model="gpt-4o", tokens=3}]')
    assert again.find("gpt-4o").tokens == 2


def test_a_users_row_also_holds_for_names_that_contain_its_own() -> None:
    windows = made('[[window]]\nmodel = "house-model-7"\ntokens = 5000')
    assert windows.find("team-house-model-7-blue").tokens == 5000


def test_a_gap_gives_way_to_the_tables_own_row_and_comes_before_rows_that_only_share_the_name() -> None:
    windows = made('gap = [{model="gpt-4o", tokens=1}, {model="qwen/qwen3-coder-flash", tokens=128000}]')
    assert windows.find("gpt-4o").source == "litellm"
    assert windows.find("qwen/qwen3-coder-flash") == Window(128_000, source="gap")
    assert windows.find("qwen3-coder-flash").tokens == 997_952


def test_a_gap_is_found_by_pattern_and_by_part() -> None:
    windows = made('gap = [{model="llama3.2:*", tokens=128000}, {model="grok-beta", tokens=131072, can=["tools"]}]')
    assert windows.find("llama3.2:3b").tokens == 128_000
    assert windows.find("my-grok-beta") == Window(131_072, source="guess", guessed=True, can=frozenset({"tools"}))


def test_the_tokenizer_is_the_users(tmp_path: Path) -> None:
    write(tmp_path / "t.json")
    sheet, _ = parse_window_rules({"window": [{"model": "llama*", "tokenizer": "t.json"}]}, tmp_path)
    windows = Windows(sheet, read_table(b"{}"))
    assert windows.tokenizer("llama-3") == str(tmp_path / "t.json")
    assert windows.tokenizer("other") is None
    assert not windows.is_known("llama-3")


def test_under_what_a_model_was_found_can_be_shown() -> None:
    found = made('[[window]]\nmodel = "gpt-4"\nmax_output = 8192').lookup("my-gpt-4-proxy")
    assert found.part == "gpt-4"
    assert found.row is not None and found.row.model == "gpt-4"
    assert found.entry is not None and found.entry.tokens == 8192


def test_names_are_lookups_but_not_without_bound() -> None:
    windows = made()
    for number in range(CACHED_NAMES + 100):
        windows.find(f"model-{number}")
    assert windows.lookup("gpt-4") is windows.lookup("gpt-4")
    assert windows._lookups.cache_info().currsize == CACHED_NAMES


@pytest.mark.parametrize(
    ("window", "limit", "expected"),
    [
        (Window(8192, source="litellm"), 4000, Window(4000, source="cap", uncapped=8192)),
        (Window(8192, source="litellm"), 9000, Window(8192, source="litellm")),
        (Window(8192, source="litellm"), None, Window(8192, source="litellm")),
        (Window(8192, source="guess", guessed=True), 32_000, Window(32_000, source="cap")),
        (Window(8192, source="guess", guessed=True), 1000, Window(1000, source="cap")),
        (Window(8192, source="guess", guessed=True), None, Window(8192, source="guess", guessed=True)),
    ],
)
def test_a_cap_never_widens_a_window_that_is_known(window: Window, limit: int | None, expected: Window) -> None:
    assert capped(window, limit) == expected


SEEDS = {  # every model that the seeds name, with the figure that they give it
    "gpt-4": 8192,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-3.5-turbo": 16_385,
    "claude-3-opus": 200_000,
    "claude-3-sonnet": 200_000,
    "claude-3-haiku": 200_000,
    "claude-3-5-sonnet": 200_000,
    "llama3.2:3b": 128_000,
    "llama3.1:70b": 128_000,
    "deepseek-coder:6.7b": 16_000,
    "qwen2.5:7b": 128_000,
    "mistral:7b": 32_768,
    "grok-beta": 131_072,
    "grok-3": 131_072,
    "qwen/qwen3-coder-flash": 128_000,
    "qwen/qwen3-235b-a22b": 262_144,
    "openai/gpt-5-mini": 400_000,
    "gemini-2.5-flash": 1_048_576,
}


@pytest.mark.parametrize(("model", "tokens"), SEEDS.items())
def test_the_seeds_models_have_the_seeds_windows(shipped: Windows, model: str, tokens: int) -> None:
    window = shipped.find(model)
    assert (window.tokens, window.guessed) == (tokens, False)


@pytest.mark.parametrize("model", ["deepseek-chat", "x-ai/grok-4-fast"])
def test_models_that_grew_since_the_seeds_hold_at_least_as_much(shipped: Windows, model: str) -> None:
    assert shipped.find(model).tokens >= 64_000


def test_whose_templates_want_turns_is_known_by_their_names(shipped: Windows) -> None:
    names = ("mistralai/Mistral-7B-Instruct-v0.3", "open-mixtral-8x7b", "ministral-8b-latest", "google/gemma-3-27b-it")
    more = ("meta-llama/Llama-2-13b-chat-hf", "codellama/CodeLlama-34b-Instruct-hf", "sonar-pro", "command-r-plus")
    assert all(shipped.find(name).alternates for name in names + more)
    others = ("gpt-4o", "claude-sonnet-4", "meta-llama/Llama-3.2-3B", "qwen3:8b", "gemini-2.5-flash", "x" * 999)
    assert not any(shipped.find(name).alternates for name in others)


def test_whose_reply_is_separate_and_whose_reasoning_is_bound_is_known_by_their_names(shipped: Windows) -> None:
    separate = ("claude-sonnet-4-5", "anthropic/claude-opus-4.5", "claude-haiku-4-5@20251001", "claude-opus-5-5")
    assert all(shipped.find(name).separate for name in separate)
    shared = ("claude-opus-4-20250514", "claude-opus-4-1", "claude-3-7-sonnet-20250219", "claude-3-5-haiku", "gpt-4o")
    assert not any(shipped.find(name).separate for name in shared)
    assert shipped.find("claude-fable-5-1").binds and shipped.find("claude-opus-5").binds is None


def test_models_that_require_the_reasoning_of_earlier_turns_are_known_by_their_names(shipped: Windows) -> None:
    required = ("deepseek-v4-pro", "deepseek/deepseek-reasoner", "deepseek-chat")
    assert all(shipped.find(name).requires_reasoning for name in required)
    assert not any(shipped.find(name).requires_reasoning for name in ("deepseek-r1:8b", "claude-fable-5-1", "gpt-5.6"))


def test_gpt_5_bounds_the_prompt_within_its_window(shipped: Windows) -> None:
    window = shipped.find("gpt-5-mini-2025-08-07")
    assert (window.tokens, window.max_input, window.max_output) == (400_000, 272_000, 128_000)


def test_every_shipped_row_is_found_under_its_own_name(shipped: Windows) -> None:
    sheet, _ = parse_window_rules(tomllib.loads((built_in() / "windows.toml").read_text("utf-8")), built_in())
    for gap in sheet.fallbacks:
        name = gap.model.replace(":[0-9]*", ":7b").replace("*", "x")
        assert shipped.is_known(name), gap.model
        assert not shipped.lookup(name).part, gap.model


@pytest.mark.parametrize("name", ["gpt-5", "openai/gpt-5-mini-2025-08-07", "azure/o3-mini", "O1", "gpt-5.1-codex"])
def test_models_that_think_take_their_limit_in_a_field_of_its_own(shipped: Windows, name: str) -> None:
    assert shipped.find(name).limit_field == "max_completion_tokens"


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-oss-120b", "openai/gpt-4.1", "olmo", "claude-opus-4-5", "nobody"])
def test_other_models_take_it_in_either_for_all_we_know(shipped: Windows, name: str) -> None:
    assert shipped.find(name).limit_field is None


PRICED = {"input_cost_per_token": 2.5e-6, "output_cost_per_token": 1e-5}


def with_prices(sheet: str = "") -> Windows:
    parsed, problems = parse_window_rules(tomllib.loads(sheet), Path())
    assert problems == []
    rows = {name: {"mode": "chat", **row, **PRICED} for name, row in ROWS.items() if name != "gpt-4"}
    return Windows(parsed, read_table(json.dumps(rows).encode()))


def test_a_model_has_the_price_of_the_table_under_every_spelling_of_its_name() -> None:
    for name in ("gpt-4o", "openai/gpt-4o", "GPT-4o-2024-05-13"):
        assert with_prices().prices(name) == Prices(Rates(2.5e-6, 1e-5))


def test_a_row_of_the_user_outranks_the_price_of_the_table() -> None:
    windows = with_prices('price = [{ model = "gpt-4o*", input = 1, output = 2 }]')
    assert windows.prices("openai/gpt-4o") == Prices(Rates(1e-6, 2e-6))
    assert windows.prices("gpt-5") == Prices(Rates(2.5e-6, 1e-5))


@pytest.mark.parametrize("name", ["gpt-4", "nobody-knows-it", "my-gpt-4o-tune", ""])
def test_what_only_holds_the_name_of_a_model_has_no_price(name: str) -> None:
    assert with_prices().prices(name) is None


def test_the_age_of_the_table_follows_from_its_newest_name() -> None:
    assert with_prices().newest == "2024-08-06"
    assert with_prices().newest_at == 1_722_902_400
    assert Windows(WindowRules(), read_table(b"{}")).newest_at == 0


def test_models_of_embeddings_take_so_many_inputs_and_a_row_of_the_users_outranks_their_window() -> None:
    rows = '[[inputs]]\nmodel = "emb-*"\ntokens = 8192\nmost = 9\ntogether = 500\n'
    assert made(rows).find("emb-1") == Window(8192, source="gap", max_inputs=9, max_together=500)
    stated = made(rows + '[[window]]\nmodel = "emb-1"\ntokens = 512\n').find("emb-1")
    assert (stated.tokens, stated.source, stated.max_inputs) == (512, "rules", 9)


def test_a_deployment_runs_what_its_row_says_else_the_model_of_its_name() -> None:
    rules = made('[[deployment]]\nname = "Billing-*"\nruns = "gpt-4"\n')
    assert rules.deployed("billing-eu") == "gpt-4" and rules.deployed("gpt-4o") == "gpt-4o"


def test_the_shipped_rows_have_openais_limits_of_embeddings(shipped: Windows) -> None:
    for model in ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002"):
        found = shipped.find(model)
        assert (found.tokens, found.max_inputs, found.max_together) == (8192, 2048, 300_000)
    assert shipped.find("gpt-3.5-turbo-instruct").tokens == 4097


BETA = (b"anthropic-beta", b"context-management-2025-06-27, context-1m-2025-08-07")


@pytest.mark.parametrize(
    "model", ["claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-20250514", "claude-sonnet-4-0"]
)
def test_a_header_asks_for_a_longer_window(shipped: Windows, model: str) -> None:
    others = (b"anthropic-beta", b"other-1m-2025"), (b"x-beta", BETA[1])
    assert shipped.requested(model, [(b"accept", b"*/*"), BETA]) == 1_000_000
    assert shipped.requested(model, [others[0], BETA]) == 1_000_000
    assert shipped.requested(model, others) is None and shipped.requested(model, []) is None


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-sonnet-4-6", "claude-haiku-4-5", "gpt-4o", ""])
def test_of_other_models_no_header_changes_the_window(shipped: Windows, model: str) -> None:
    assert shipped.requested(model, [BETA]) is None


def test_a_cache_row_changes_how_prompts_of_its_models_are_cached_and_what_a_write_costs() -> None:
    row = '[[cache]]\nmodel = "my-*"\nmatch = "breakpoint"\nseconds = 1800\nleast = 2048\nwrite = 1.25\n'
    price = '[[price]]\nmodel = "my-model"\ninput = 4.0\noutput = 20.0\ncache_read = 0.4\n'
    found = made(row + price).prices("my-model")
    assert found is not None
    cache = found.cache
    assert (cache.match, cache.seconds, cache.least, cache.step) == ("breakpoint", 1800.0, 2048, 128)
    assert found.rates.cache_write == pytest.approx(5.0 / 1_000_000)
    own = made(row + price + "cache_write = 4.5\n").prices("my-model")
    assert own is not None and own.rates.cache_write == pytest.approx(4.5 / 1_000_000)


@pytest.mark.parametrize(
    ("name", "match"), [("gpt-5.6", "breakpoint"), ("gpt-5.6-luna", "breakpoint"), ("gpt-5.5", "prefix")]
)
def test_since_gpt_5_6_openai_reads_at_breakpoints(name: str, match: str) -> None:
    found = load_windows(load_rules(None).windows).prices(name)
    assert found is not None and found.cache.match == match
    assert (found.rates.cache_write is not None) == (match == "breakpoint")


@pytest.mark.parametrize(
    ("names", "tokens"),
    [
        (("grok-4.1-fast", "grok-4-1-fast", "grok-4-1-fast-reasoning"), 2_000_000),
        (("x-ai/grok-4.1-fast", "xai/grok-4-1-fast-non-reasoning"), 2_000_000),
        (("grok-4-fast", "x-ai/grok-4-fast"), 2_000_000),
        (("llama3.1", "llama3.1:8b", "ollama/llama3.1", "llama3.1:latest"), 128_000),
        (("qwen3", "qwen3:8b", "qwen3:latest"), 40_960),
        (("gemma3", "gemma3:4b"), 131_072),
        (("deepseek-chat", "deepseek/deepseek-chat", "deepseek-reasoner"), 1_000_000),
        (("deepseek-v4", "deepseek-v4-flash"), 1_000_000),
        (("MiniMax-M2", "MiniMax-M2.1", "minimax/MiniMax-M2.5", "MiniMax-M2.5"), 204_800),
        (("gemini-3.5-pro", "google/gemini-3.5-pro", "gemini-3.5-flash"), 1_048_576),
        (("qwen3.5", "qwen3.5:9b", "qwen3.6", "qwen3.6:27b"), 262_144),
        (("kimi-latest", "moonshot/kimi-latest"), 131_072),
        (("nemotron-3-super", "nvidia/nemotron-3-super"), 262_144),
        (("command-r7b", "command-r7b-12-2024", "cohere/command-r7b"), 128_000),
        (("groq/compound", "compound", "groq/compound-mini"), 131_072),
        (("openrouter/auto",), 2_000_000),
        (("granite4", "granite4:micro", "granite-4.0-h-small", "ibm/granite-4.0-h-small"), 131_072),
        (("ernie-4.5", "baidu/ernie-4.5"), 131_072),
        (("hunyuan-a13b", "tencent/hunyuan-a13b-instruct"), 131_072),
        (("seed-oss-36b", "bytedance-seed/seed-oss-36b-instruct"), 524_288),
        (("step-3.5", "step-3.5-flash", "stepfun/step-3.5-flash"), 262_144),
        (("smollm3", "HuggingFaceTB/SmolLM3-3B"), 65_536),
        (("lfm2", "lfm2:1.2b"), 32_768),
    ],
)  # fmt: skip
def test_W17_all_spellings_of_a_name_of_2026_give_one_window_that_is_known(
    shipped: Windows, names: tuple[str, ...], tokens: int
) -> None:
    assert {name: (shipped.find(name).tokens, shipped.find(name).guessed) for name in names} == dict.fromkeys(
        names, (tokens, False)
    )


def test_W17_a_reply_of_minimax_is_bounded_by_its_window_alone(shipped: Windows) -> None:
    assert shipped.find("MiniMax-M2").max_output is shipped.find("minimax/MiniMax-M2.5").max_output is None


def test_a_row_may_wish_an_effective_window_and_leave_all_else_to_the_table() -> None:
    windows = made('[[window]]\nmodel = "gpt-4o*"\neffective = 64000\n[[window]]\nmodel = "mystery"\neffective = 5\n')
    found = windows.find("openai/gpt-4o-mini")
    assert (found.tokens, found.effective, found.source) == (128_000, 64_000, "litellm")
    assert windows.find("gpt-5").effective is None
    unknown = windows.find("mystery")
    assert (unknown.guessed, unknown.effective) == (True, 5)
