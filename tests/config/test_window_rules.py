from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from proxy.config.window_rules import (
    FallbackRow,
    LimitFieldRow,
    RolesRow,
    SumRow,
    WindowRow,
    WindowRules,
    parse_window_rules,
)
from proxy.fit.money import CACHES, Prices, Rates
from tests.tokens.vocabulary import write


def parsed(text: str, folder: Path = Path()) -> tuple[WindowRules, list[str]]:
    return parse_window_rules(tomllib.loads(text), folder)


def test_rows_of_each_kind_are_read_in_their_order() -> None:
    sheet, problems = parsed(
        """
        beside = [{ input = 272000, output = 128000 }]
        [[window]]
        model = "a"
        tokens = 1000
        max_input = 900
        max_output = 100
        can = ["tools", "vision"]
        [[window]]
        model = "b*"
        can = []
        [[gap]]
        model = "c"
        tokens = 5
        [[limit]]
        model = "d"
        field = "max_tokens"
        [[roles]]
        model = "e"
        alternate = true
        """
    )
    assert problems == []
    assert sheet == WindowRules(
        windows=(WindowRow("a", 1000, 900, 100, can=("tools", "vision")), WindowRow("b*", can=())),
        fallbacks=(FallbackRow("c", 5),),
        sums=(SumRow(272_000, 128_000),),
        limit_fields=(LimitFieldRow("d", "max_tokens"),),
        roles=(RolesRow("e", True),),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[window]]\nmodel = "m"\ntokens = "many"', "window 1 (m): tokens: expected int, got str"),
        ('[[window]]\nmodel = "m"\ntokens = true', "window 1 (m): tokens: expected int, got bool"),
        ('[[window]]\nmodel = "m"\ntokns = 5', "window 1 (m): unknown field tokns, did you mean tokens?"),
        ('[[window]]\nmodel = "m"', "window 1 (m): the row sets no field"),
        ("[[window]]\ntokens = 5", "window 1: missing field model"),
        ('[[window]]\nmodel = " "\ntokens = 5', "window 1 ( ): model must not be empty"),
        (
            '[[window]]\nmodel = "m"\nmax_output = 0',
            "window 1 (m): tokens, max_input and max_output must be at least 1 token",
        ),
        (
            '[[window]]\nmodel = "m"\ntokens = 100\nmax_input = 200',
            "window 1 (m): max_input and max_output must not be over tokens (100)",
        ),
        (
            '[[gap]]\nmodel = "m"\ntokens = 100\nmax_output = 101',
            "gap 1 (m): max_input and max_output must not be over tokens (100)",
        ),
        (
            '[[window]]\nmodel = "m"\ntokens = 9999999999',
            "window 1 (m): tokens, max_input and max_output must be at most 1,000,000,000 tokens",
        ),
        ('[[gap]]\nmodel = "m"', "gap 1 (m): missing field tokens"),
        ('[[gap]]\nmodel = "m"\ntokens = -1', "gap 1 (m): tokens, max_input and max_output must be at least 1 token"),
        ("beside = [{ input = 1 }]", "beside 1: missing field output"),
        ("beside = [{ input = 0, output = 1 }]", "beside 1: input: expected int >= 1"),
        (
            'limit = [{ model = "m", field = "n" }]',
            "limit 1 (m): field must be one of max_completion_tokens, max_tokens",
        ),
        ('limit = [{ model = "", field = "max_tokens" }]', "limit 1 (): model must not be empty"),
        ("roles = [{ model = 'm' }]", "roles 1 (m): missing field alternate"),
        ("roles = [{ model = ' ', alternate = true }]", "roles 1 ( ): model must not be empty"),
        ("reply = [{ model = 'm', reply = 'x' }]", "reply 1 (m): reply: Invalid enum value 'x'"),
        ("reply = [{ model = ' ', reply = 'shared' }]", "reply 1 ( ): model must not be empty"),
        ("reasoning = [{ model = '', bound = true }]", "reasoning 1 (): model must not be empty"),
        ("reasoning = [{ model = 'm', earlier = 'x' }]", "reasoning 1 (m): earlier: Invalid enum value 'x'"),
        (
            "beta = [{ model = '', header = 'x', value = 'y', tokens = 1 }]",
            "beta 1 (): model must not be empty",
        ),
        (
            "beta = [{ model = 'm', header = 'X-Y', value = 'y', tokens = 1 }]",
            "beta 1 (m): header must be the name of a header in lower case",
        ),
        (
            "beta = [{ model = 'm', header = 'x', value = ' ', tokens = 1 }]",
            "beta 1 (m): value must not be empty",
        ),
        ("window = 5", "window 1: expected object, got int"),
        (
            '[windows]\nmodel = "m"',
            "windows: unknown table, must be one of window, gap, beside, limit, roles, reply, reasoning, price, inputs,"
            " deployment, beta, cache",
        ),
        (
            '[window]\nmodel = "m"\nx = 1',
            "window 1 (m): unknown field x, known are model, tokens, max_input, max_output, tokenizer, can, effective",
        ),
        (
            '[[inputs]]\nmodel = "m"\ntokens = 0\nmost = 1',
            "inputs 1 (m): tokens, most and together must be from 1 to 1,000,000,000",
        ),
        ('[[deployment]]\nname = "d"\nruns = " "', "deployment 1: model must not be empty"),
        (
            '[[deployment]]\nname = "d"\nruns = "gpt-*"',
            "deployment 1: runs must be the name of one model, not a pattern",
        ),
        (
            '[[window]]\nmodel = "m"\ncan = ["tool"]',
            "window 1 (m): can: tool is not one of audio, files, prompt_caching, reasoning, schema, tools, video,"
            " vision, web_search",
        ),
    ],
)
def test_a_wrong_row_is_named_by_kind_place_and_model_with_the_reason(text: str, problem: str) -> None:
    sheet, problems = parsed(text)
    assert problems == [problem]
    assert sheet == WindowRules()


def test_all_problems_are_told_and_right_rows_kept() -> None:
    sheet, problems = parsed('window = [{ model = "a" }, { model = "b", tokens = 1 }, { tokens = 2 }]')
    assert [problem.partition(":")[0] for problem in problems] == ["window 1 (a)", "window 3"]
    assert sheet.windows == (WindowRow("b", 1),)


def test_a_tokenizer_is_a_file_relative_to_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "llama3.json")
    sheet, problems = parsed('[[window]]\nmodel = "m"\ntokenizer = "llama3.json"', tmp_path)
    assert problems == []
    assert sheet.windows == (WindowRow("m", tokenizer=str(tmp_path / "llama3.json")),)


def test_a_tokenizer_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    _, problems = parsed('[[window]]\nmodel = "m"\ntokenizer = "x.json"', tmp_path)
    assert problems == [f"window 1 (m): tokenizer: no such file: {tmp_path / 'x.json'}"]


def test_a_tokenizer_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"version": "1.0"}')
    _, problems = parsed('[[window]]\nmodel = "m"\ntokenizer = "x.json"', tmp_path)
    assert len(problems) == 1
    assert problems[0].startswith(f"window 1 (m): tokenizer: {tmp_path / 'x.json'} is not a valid tokenizer.json")


def test_without_the_package_a_tokenizer_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "x.json")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    _, problems = parsed('[[window]]\nmodel = "m"\ntokenizer = "x.json"', tmp_path)
    assert problems == ["window 1 (m): tokenizer: needs the package tokenizers, which is not installed"]


def test_the_upper_sheets_rows_come_first() -> None:
    upper, _ = parsed('[[window]]\nmodel = "a"\ntokens = 1\n[[gap]]\nmodel = "g"\ntokens = 1')
    lower, _ = parsed('beside = [{ input = 1, output = 2 }]\n[[window]]\nmodel = "a"\ntokens = 2')
    both = upper.before(lower)
    assert [row.tokens for row in both.windows] == [1, 2]
    assert (len(both.fallbacks), len(both.sums)) == (1, 1)


def test_a_price_is_in_dollars_for_a_million_tokens() -> None:
    sheet, problems = parsed(
        """
        [[price]]
        model = "mine-*"
        input = 0.5
        output = 2
        cache_read = 0.05
        cache_write = 0.625
        cache = "anthropic"
        """
    )
    assert problems == []
    assert sheet.prices[0].prices.cache == CACHES["anthropic"]
    assert sheet.prices[0].prices.rates[:4] == pytest.approx((0.5e-6, 2e-6, 0.05e-6, 0.625e-6))
    free, _ = parsed('price = [{ model = "local", input = 0, output = 0 }]')
    assert free.prices[0].prices == Prices(Rates(0.0, 0.0))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("input = 1", "output"),
        ("input = -1, output = 1", "prices must be from 0 to 10,000"),
        ("input = 1, output = 1, cache_read = 20000", "prices must be from 0 to 10,000"),
        ('input = 1, output = 1, cache = "mine"', "cache must be one of openai, anthropic, gemini, deepseek"),
        ("input = 1, output = 1, reply = 3", "reply"),
    ],
)
def test_a_wrong_price_is_a_problem(row: str, problem: str) -> None:
    sheet, problems = parsed(f'price = [{{ model = "m", {row} }}]')
    assert sheet.prices == () and len(problems) == 1 and problem in problems[0]


@pytest.mark.parametrize("value", ["0", "-1", "1.5", '"64k"', "2000000000"])
def test_an_effective_window_is_a_number_of_tokens(tmp_path: Path, value: str) -> None:
    _, problems = parsed(f'[[window]]\nmodel = "m"\neffective = {value}', tmp_path)
    assert len(problems) == 1 and problems[0].startswith("window 1 (m): ")
