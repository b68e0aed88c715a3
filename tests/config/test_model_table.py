from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.config import model_table
from proxy.config.model_table import Entry, Table, read_table, table_file
from proxy.errors import ConfigError


def row(held: Any, output: Any = None, mode: Any = "chat", **more: Any) -> dict[str, Any]:
    return {"mode": mode, "max_input_tokens": held, "max_output_tokens": output, "max_tokens": 1, **more}


def made(rows: dict[str, dict[str, Any]], beside: set[tuple[int, int]] | None = None) -> Table:
    return read_table(json.dumps(rows).encode(), beside or set())


def test_the_input_figure_is_the_window_and_the_reply_has_its_cap() -> None:
    assert made({"gpt-4o": row(128_000, 16_384)}).exact("gpt-4o") == Entry("gpt-4o", 128_000, None, 16_384)


def test_a_cap_as_large_as_the_window_is_none() -> None:
    assert made({"m": row(8192, 8192)}).exact("m") == Entry("m", 8192)


def test_of_pairs_that_stand_beside_each_other_the_window_is_the_sum() -> None:
    found = made({"gpt-5": row(272_000, 128_000), "x": row(272_000)}, {(272_000, 128_000)})
    assert found.exact("gpt-5") == Entry("gpt-5", 400_000, 272_000, 128_000)
    assert found.exact("x") == Entry("x", 272_000)


def test_names_are_kept_in_lower_case() -> None:
    assert made({"Together/Llama-3": row(8192)}).exact("together/llama-3") is not None


@pytest.mark.parametrize(
    "strange",
    [
        row("max input tokens, if the provider specifies it"),
        row(None),
        row(0),
        row(-5),
        row(True),
        row(1.5),
        row(8192, mode="embedding"),
        row(8192, mode=None),
        row(8192, mode="one of: chat, embedding"),
    ],
)
def test_rows_that_name_no_window_of_a_text_model_are_left_out(strange: dict[str, Any]) -> None:
    found = made({"sample_spec": strange, "m": row(8192)})
    assert found.exact("sample_spec") is None
    assert found.exact("m") is not None


def test_the_cap_on_the_reply_alone_makes_no_window() -> None:
    assert made({"m": {"mode": "chat", "max_tokens": 4096}}).exact("m") is None


@pytest.mark.parametrize("output", ["many", 0, 1.5, None])
def test_a_strange_cap_is_none(output: Any) -> None:
    assert made({"m": row(8192, output)}).exact("m") == Entry("m", 8192)


def test_what_a_model_can_do_is_what_the_table_says_and_nothing_where_it_says_nothing() -> None:
    found = made(
        {
            "a": row(8192, supports_function_calling=True, supports_vision=False, supports_response_schema="yes"),
            "b": row(8192),
            "c": row(8192, supports_vision=False),
        }
    )
    assert [entry and entry.can for entry in map(found.exact, "abc")] == [frozenset({"tools"}), None, frozenset()]


def test_a_models_own_row_outranks_those_of_its_maker_and_of_hosts() -> None:
    rows = {"host/m-1": row(1000), "mistral/m-1": row(2000), "m-1": row(3000)}
    assert [_tokens(made(rows), "m-1")] == [3000]
    del rows["m-1"]
    assert _tokens(made(rows), "m-1") == 2000
    del rows["mistral/m-1"]
    assert _tokens(made(rows), "m-1") == 1000


def test_a_row_without_a_version_outranks_one_with() -> None:
    rows = {"m-1-2024-08-06": row(1000), "host/m-1": row(2000)}
    assert _tokens(made(rows), "m-1") == 2000
    assert _tokens(made(rows), "m-1-2024-08-06") == 1000


def test_hosts_vote_and_the_middle_breaks_a_tie() -> None:
    assert _tokens(made({"a/m-1": row(1), "b/m-1": row(5), "c/m-1": row(5)}), "m-1") == 5
    assert _tokens(made({"a/m-1": row(1), "b/m-1": row(5), "c/m-1": row(1000)}), "m-1") == 5


def test_what_hosts_agree_on_is_read_in_the_models_favour() -> None:
    found = made(
        {
            "a/m-1": row(9000, 100, supports_vision=True),
            "b/m-1": row(9000, 200, supports_function_calling=True),
            "c/m-1": row(9000, 300),
        }
    )
    assert found.shared("m-1") == Entry("a/m-1", 9000, None, 300, frozenset({"vision", "tools"}))
    assert made({"a/m-1": row(9000, 100), "b/m-1": row(9000)}).shared("m-1") == Entry("a/m-1", 9000)


def test_a_stem_that_tells_nothing_is_shared_by_nobody() -> None:
    found = made({"chat-latest": row(9000), "mistral-2407": row(9000)})
    assert found.shared("chat") is None
    assert found.shared("mistral") is None
    assert _tokens(found, "chat-latest") == 9000


def test_what_is_no_table_is_an_error_that_names_the_file() -> None:
    with pytest.raises(ConfigError, match=model_table.FILE):
        read_table(b"[]")


def test_a_table_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.tokens.litellm_data.found", list)
    with pytest.raises(ConfigError, match=r"install plimsoll\[litellm\]"):
        table_file()


def test_the_installed_table_is_found_and_read_without_importing_litellm() -> None:
    import sys

    before = "litellm" in sys.modules
    found = read_table(table_file().read_bytes(), {(272_000, 128_000)})
    assert ("litellm" in sys.modules) == before
    assert _tokens(found, "gpt-4") == 8192
    assert len(found.rows) > 1000
    assert found.exact("sample_spec") is None


def _tokens(found: Table, form: str) -> int | None:
    entry = found.shared(form)
    return None if entry is None else entry.tokens


def test_the_newest_date_in_the_names_is_that_of_the_table() -> None:
    names = ("gpt-4o-2024-08-06", "claude-3-opus-20240229", "x-2031-02-31", "gpt-4-0613", "llama-20990")
    assert made({name: row(8192, mode="embedding") for name in names}).newest == "2024-08-06"
    assert made({"gpt-4": row(8192)}).newest == ""
