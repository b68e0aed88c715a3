from __future__ import annotations

import io

import pytest

from proxy.cli.caller import run
from proxy.errors import ConfigError
from proxy.request.callers import hash_of


def test_U29_the_hash_of_each_key_is_printed_and_no_key_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-secret-1\n\nBearer sk-secret-2\n"))
    assert run(b"one") == 0
    out, problem = capsys.readouterr()
    assert out.split() == [hash_of(b"one", b"sk-secret-1"), hash_of(b"one", b"sk-secret-2")]
    assert "sk-secret" not in out + problem


def test_a_terminal_is_asked_for_a_key(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("proxy.cli.caller.getpass", lambda prompt: "sk-secret-1")
    assert run(b"one") == 0 and capsys.readouterr().out.strip() == hash_of(b"one", b"sk-secret-1")


@pytest.mark.parametrize("given", ["", "\n", "two words here\n", "sk one\n"])
def test_what_is_no_key_is_said_to_be_none(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    with pytest.raises(ConfigError, match="a key on each line"):
        run(b"one")


def test_without_a_secret_there_is_no_hash() -> None:
    with pytest.raises(ConfigError, match="PLIMSOLL_SECRET is not set"):
        run(None)
