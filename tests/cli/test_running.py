"""The commands that ask a running proxy, most of them where there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_main import clean, ended
from tests.ports import held_port

__all__ = ["clean"]  # the fixture


def test_models_are_shown_with_where_we_know_them_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys, "models", "gpt-4o", "nobody-knows-it")
    known, unknown = out.splitlines()[1:3]
    assert code == 0
    assert known.split()[:5] == ["gpt-4o", "128,000", "16,384", "litellm", "exact"]
    assert unknown.split()[:4] == ["nobody-knows-it", "8,192", "a", "guess"]


def test_models_can_be_read_by_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "harbour"\ntokens = 9000\n')
    code, out, _ = ended(capsys, "models", "--json", "--rules", str(tmp_path), "harbour")
    (row,) = json.loads(out)
    assert code == 0
    assert (row["window"], row["source"], row["guessed"], row["count"]) == (9000, "rules", False, "estimated")


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port on which nobody listens."""
    with held_port() as port:
        yield port


@pytest.mark.parametrize("command", ["models", "forget"])
def test_a_proxy_that_is_named_must_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, nobody: int, command: str
) -> None:
    nowhere = f"http://127.0.0.1:{nobody}"
    said = f"plimsoll: no proxy responds at {nowhere}: Connection refused\n"
    assert ended(capsys, command, "gpt-4o", "--url", nowhere) == (1, "", said)
    code, out, err = ended(capsys, command, "gpt-4o", "--url", "gpt-4o")
    assert (code, out) == (2, "") and "--url must be the URL of a running proxy" in err
    monkeypatch.setenv("PLIMSOLL_ADMIN_URL", nowhere)
    assert ended(capsys, command, "gpt-4o") == (1, "", said)


def test_a_proxy_that_is_not_named_is_shown_if_it_is_there_but_forgets_only_where_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, nobody: int
) -> None:
    monkeypatch.setenv("PLIMSOLL_ADMIN_PORT", str(nobody))
    code, out, err = ended(capsys, "models", "gpt-4o")
    assert (code, err) == (0, "") and "learned" not in out
    assert ended(capsys, "forget", "gpt-4o")[0] == 1
    monkeypatch.setenv("PLIMSOLL_ADMIN_PORT", "0")
    code, _, err = ended(capsys, "forget", "gpt-4o")
    assert (code, err) == (2, "plimsoll: the proxy's address is unknown: set --url\n")


def test_U14_a_page_where_nothing_listens_is_not_opened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    code, out, err = ended(capsys, "page", "--url", "http://127.0.0.1:1")
    assert code == 1 and not out and "no proxy responds at http://127.0.0.1:1" in err and not opened


def test_the_page_is_opened_and_its_url_is_printed_without_the_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    private: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("proxy.cli.running.open_privately", private.append)
    monkeypatch.setattr("proxy.cli.admin_client.overview", lambda url, token: {})
    assert ended(capsys, "page")[0] == 2  # port 0: nobody knows which
    monkeypatch.delenv("PLIMSOLL_ADMIN_PORT")
    code, _, err = ended(capsys, "page")
    assert code == 2 and "set PLIMSOLL_ADMIN_PORT" in err
    monkeypatch.setenv("PLIMSOLL_ADMIN_PORT", "8081")
    assert ended(capsys, "page") == (0, "http://127.0.0.1:8081/\n", "")
    monkeypatch.setenv("PLIMSOLL_ADMIN_TOKEN", "0123456789abc#&?")
    assert ended(capsys, "page", "--url", "http://host:1/p") == (0, "http://host:1/p/\n", "")
    assert opened == ["http://127.0.0.1:8081/"]
    assert private == ["http://host:1/p/#token=0123456789abc%23%26%3F"]
