from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.check import run
from proxy.config.settings import read_settings
from proxy.errors import ConfigError
from proxy.request.callers import hash_of


def test_U29_it_says_whom_the_rows_of_callers_match(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = f'[[caller]]\nname = "search"\nmatch = "{hash_of(b"one", b"sk-1")}"\nwindow = 4000'
    (tmp_path / "callers.toml").write_text(rows)
    environment = {"PLIMSOLL_RULES": str(tmp_path)}
    assert run(tmp_path, None) == 0
    assert "caller 1 (search): 1 key: window 4,000" in capsys.readouterr().out
    assert run(None, read_settings({**environment, "PLIMSOLL_SECRET": "one"})) == 0
    assert "caller 1 (search): 1 key: window 4,000" in capsys.readouterr().out
    for secret, problem in (("other", "was made with another PLIMSOLL_SECRET"), ("", "need PLIMSOLL_SECRET")):
        assert run(None, read_settings({**environment, "PLIMSOLL_SECRET": secret})) == 1
        assert f"callers.toml, caller 1 (search): {'a hash' if secret else 'hashes'}" in (
            out := capsys.readouterr().out
        )
        assert problem in out


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        run(tmp_path / "none", None)
