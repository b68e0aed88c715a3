"""Which upstream a request goes to."""

from __future__ import annotations

import pytest

from proxy.config.upstreams import UpstreamRow
from proxy.upstreams.routing import Routing, is_plain, routing

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def row(name: str, api: str = "openai", models: tuple[str, ...] = (), paths: tuple[str, ...] = ()) -> UpstreamRow:
    return UpstreamRow(name, "http://host/v1", api, models, paths)


def table(*rows: UpstreamRow) -> Routing:
    return routing(rows)


def test_the_first_row_that_matches_wins_and_else_the_default() -> None:
    rows = table(row("a", models=("llama*", "qwen*")), row("b", models=("*",), paths=("/v1/chat/*",)))
    assert rows.upstream(CHAT, "Llama-3") == "a"
    assert rows.upstream(CHAT, "gpt-4o") == "b"
    assert rows.upstream("/v1/responses", "gpt-4o") == "default"
    assert rows.upstream(CHAT, "") == "default"


def test_a_row_takes_only_the_api_that_it_speaks() -> None:
    rows = table(row("a", "anthropic", models=("claude-*",)), row("b", models=("claude-*",)))
    assert (rows.upstream(MESSAGES, "claude-x"), rows.upstream(CHAT, "claude-x")) == ("a", "b")


def test_a_row_with_paths_alone_takes_every_model_and_requests_without_one() -> None:
    rows = table(row("a", "anthropic", paths=("/v1/messages*",)))
    assert rows.upstream(MESSAGES, "x") == rows.upstream("/v1/messages/count_tokens") == "a"


def test_a_row_without_globs_takes_nothing_by_itself() -> None:
    assert table(row("a")).upstream(CHAT, "x") == "default"


def test_a_very_long_name_is_no_model() -> None:
    assert table(row("a", models=("*",))).upstream(CHAT, "x" * 10_000) == "default"


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        (CHAT, True),
        ("/v1/files/file-1.txt", True),
        ("/v1/models/gpt-4o:latest@x", True),
        ("/v1/.../x", True),
        ("/v1/../x", False),
        ("/v1/./x", False),
        ("/v1/..", False),
        ("/v1/%2e%2e/x", False),
        ("/v1//x", False),
        ("/v1/x/", False),
        ("/v1/x\\..\\y", False),
        ("/v1/x;y", False),
        ("", False),
        ("v1", False),
    ],
)
def test_a_path_is_plain_if_it_can_be_read_in_one_way_only(path: str, plain: bool) -> None:
    assert is_plain(path) is plain
    rows = table(row("a", paths=("/v1/*",)))
    assert (rows.upstream(path) == "a") is plain


def test_a_model_of_rows_for_other_apis_alone_is_foreign_to_a_path() -> None:
    rows = table(row("a", models=("large-*",)), row("b", "anthropic", models=("claude-*",)), row("c", paths=("/v1/x",)))
    assert rows.is_foreign("/v1/messages", "LARGE-1") and rows.is_foreign(CHAT, "claude-x")
    for path, model in ((CHAT, "large-1"), ("/v1/messages", "claude-x"), (CHAT, "gpt-4o"), ("/v1/messages", "gpt-4o")):
        assert not rows.is_foreign(path, model)
