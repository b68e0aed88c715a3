from __future__ import annotations

import pytest

from proxy.config import model_names


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("gpt-4o", "gpt-4o"),
        ("azure/eu/gpt-4o", "gpt-4o"),
        ("us.anthropic.claude-3-opus", "claude-3-opus"),
        ("ai21.jamba-1-5-large-v1:0", "jamba-1-5-large-v1:0"),
        ("gpt-4.1-mini", "gpt-4.1-mini"),
        ("qwen2.5:7b", "qwen2.5:7b"),
        ("fireworks_ai/accounts/fireworks/models/kimi-k2", "kimi-k2"),
    ],
)
def test_a_bare_name_has_neither_path_nor_maker(name: str, bare: str) -> None:
    assert model_names.without_vendor(name) == bare


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-3-opus-20240229", "claude-3-opus"),
        ("claude-3-opus@20240229", "claude-3-opus"),
        ("claude-3-opus-20240229-v1:0", "claude-3-opus"),
        ("gpt-4-0613", "gpt-4"),
        ("gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("llama3.2:latest", "llama3.2"),
        ("mistral-large-latest", "mistral-large"),
        ("claude-opus-4-7@default", "claude-opus-4-7"),
        ("deepseek-v3", "deepseek-v3"),
        ("gpt-4-turbo-preview", "gpt-4-turbo-preview"),
        ("gpt-4-32k", "gpt-4-32k"),
        ("llama3.2:3b", "llama3.2:3b"),
        ("-latest", "-latest"),
        ("", ""),
    ],
)
def test_a_stem_has_no_version(name: str, stem: str) -> None:
    assert model_names.without_version(name) == stem


def test_forms_go_from_the_name_itself_to_its_bare_stem() -> None:
    assert model_names.variants(" Openrouter/OpenAI/GPT-4o-2024-08-06 ") == (
        "openrouter/openai/gpt-4o-2024-08-06",
        "openai/gpt-4o-2024-08-06",
        "gpt-4o-2024-08-06",
        "openrouter/openai/gpt-4o",
        "openai/gpt-4o",
        "gpt-4o",
    )
    assert model_names.variants("anthropic.claude-2") == ("anthropic.claude-2", "claude-2")
    assert model_names.variants("") == ()


def test_parts_are_whole_words_longest_first() -> None:
    found = model_names.parts("ft:gpt-4o-mini-2024-07-18:my-org")
    assert found.index("ft:gpt-4o-mini-2024-07-18") < found.index("gpt-4o-mini") < found.index("gpt-4o")
    assert "gpt-4" not in found
    assert list(found) == sorted(found, key=lambda part: (-len(part), part))


def test_parts_are_found_behind_a_path_and_a_maker() -> None:
    assert "claude-3-opus" in model_names.parts("bedrock/us.anthropic.claude-3-opus-custom")


def test_a_name_of_many_words_is_searched_at_its_end_only() -> None:
    assert (
        len(model_names.parts("-".join(f"w{i}" for i in range(100))))
        <= model_names.MAX_SEGMENTS**2 / 2 + model_names.MAX_SEGMENTS
    )


@pytest.mark.parametrize(
    ("part", "tells"),
    [
        ("gpt-4", True),
        ("llama3", True),
        ("deepseek-chat", True),
        ("mistral", False),
        ("70b", False),
        ("o1", False),
        ("chat-latest", False),
        ("model_router", False),
        ("2024-08", False),
    ],
)
def test_only_what_names_one_model_tells(part: str, tells: bool) -> None:
    assert model_names.is_distinctive(part) is tells
