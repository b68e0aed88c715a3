"""What stands in the way of moves that are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.bootstrap import unmovable
from proxy.config.settings import read_settings
from proxy.services import build

OPENAI, LOCAL = "https://api.openai.com/v1", "http://127.0.0.1:8000/v1"
AZURE = "https://contoso.openai.azure.com/openai/v1"
ANY, KEYED = 'callers = "any"\n', 'key = "K"\n'


def said(folder: Path, more: str, upstream: str = LOCAL, url: str = "https://llm.example.com/v1") -> list[str]:
    row = f'[[upstream]]\nname = "other"\nurl = "{url}"\nmodels = ["gpt-4.1"]\n{more}'
    (folder / "upstreams.toml").write_text(row)
    settings = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4.1", "PLIMSOLL_UPSTREAM": upstream}
    return unmovable(build(read_settings({**settings, "PLIMSOLL_RULES": str(folder)}), variables=None))


@pytest.mark.parametrize(
    ("more", "upstream", "words"),
    [
        (KEYED, AZURE, "is not made for the first request of a caller: key_checks.toml has no probe"),
        (KEYED, LOCAL, "until default has refused one"),
        (f'{KEYED}serves = ["gpt-4.1-mini"]\n', LOCAL, "the upstream other does not serve it"),
        ('api = "gemini"\npaths = ["/v1beta/other/*"]\n', LOCAL, "no upstream has it for an API that is fitted"),
    ],
)
def test_W12_a_move_that_cannot_be_made_at_once_is_told(tmp_path: Path, more: str, upstream: str, words: str) -> None:
    (line,) = said(tmp_path, more, upstream)
    assert line.startswith("a move to gpt-4.1 ") and words in line


def test_W12_a_row_without_a_key_for_an_upstream_that_checks_keys_is_told(tmp_path: Path) -> None:
    (line,) = said(tmp_path, "", LOCAL, OPENAI)
    assert "fails: the upstream other checks keys, and its row names none" in line


def test_W12_an_upstream_that_checks_no_keys_accepts_nobodys_and_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "key_checks.toml").write_text('[[key_check]]\nname = "l"\nhosts = ["127.0.0.1"]\nchecks = false\n')
    (line,) = said(tmp_path, KEYED)
    assert "default does not check keys" in line


@pytest.mark.parametrize(("more", "upstream"), [(KEYED, OPENAI), (KEYED + ANY, LOCAL), ("", LOCAL)])
def test_W12_moves_that_can_be_made_are_not_remarked_on(tmp_path: Path, more: str, upstream: str) -> None:
    assert said(tmp_path, more, upstream) == []
