"""The file that sends a browser to a URL with a token."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from proxy.cli.redirect import open_privately

URL = 'http://127.0.0.1:8081/?a=1&b="2"#token=0123456789abcdef'


def test_a_browser_gets_the_url_from_a_file_that_nobody_else_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, int, int]] = []

    def browser(address: str) -> bool:
        file = Path(unquote(urlsplit(address).path))
        seen.append((address, file.read_text(), file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777))
        return True

    monkeypatch.setattr("webbrowser.open", browser)
    assert open_privately(URL, 0)
    ((address, text, mode, folder),) = seen
    assert "token" not in address and "0123456789abcdef" not in address
    assert (mode, folder) == (0o600, 0o700)
    assert re.search('content="0;url=http://127.0.0.1:8081/[?]a=1&amp;b=&quot;2&quot;#token=0123456789abcdef"', text)
    assert not Path(unquote(urlsplit(address).path)).parent.exists(), "it is removed"


def test_without_a_browser_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def no_browser(address: str) -> bool:
        seen.append(address)
        return False

    monkeypatch.setattr("webbrowser.open", no_browser)
    assert not open_privately(URL)
    assert not Path(unquote(urlsplit(seen[0]).path)).exists()
