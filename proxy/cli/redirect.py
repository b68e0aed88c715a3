"""A private file that sends a browser to a URL: a URL in its arguments would show in the list of processes."""

from __future__ import annotations

import html
import tempfile
import time
import webbrowser
from pathlib import Path

OPENED_S = 10.0  # a browser that starts anew needs that long to read the file
PAGE = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<title>Plimsoll</title><meta http-equiv="refresh" content="0;url={url}"><a href="{url}">The page</a>\n'
)


def open_privately(url: str, seconds: float = OPENED_S) -> bool:
    """Opens a URL in a browser, which reads it from a file that only this user may read and that is removed `seconds`
    later. Returns whether there is a browser."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:  # mode 0700
        file = Path(folder) / "page.html"
        file.touch(mode=0o600)
        file.write_text(PAGE.format(url=html.escape(url)), encoding="utf-8")
        opened = webbrowser.open(file.as_uri())
        if opened:
            time.sleep(seconds)
        return opened
