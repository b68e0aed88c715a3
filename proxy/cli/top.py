"""plimsoll top: the figures and the last requests of a running proxy, live in a terminal, over its admin port."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.live import Live

from proxy.cli import admin_client
from proxy.cli.picture import terminal, view
from proxy.cli.top_view import Screen, Snapshot, draw

REFRESH_S = 1.0
KEPT = 200  # requests that are asked for, and that a filter looks at
SHOWN_ONCE = 20  # requests of a single snapshot
KEYS_S = 0.1  # how long a terminal may show what was there before
INTERRUPT, FILTER, ENTER, ESCAPE, ERASE = "\x03", ("/", "f"), ("\r", "\n"), "\x1b", ("\x7f", "\b")


def once(url: str, token: str, as_json: bool) -> int:
    """Prints one snapshot. Returns 1 if the proxy does not respond. Raises ValueError for an invalid URL."""
    snapshot = fetch(url, token, SHOWN_ONCE)
    if snapshot.overview is None:
        print(f"plimsoll: {snapshot.problem}", file=sys.stderr)
        return 1
    if as_json:
        overview = {name: value for name, value in snapshot.overview.items() if name != "token"}
        print(json.dumps({"overview": overview, "requests": snapshot.requests}, indent=2))
        return 0
    console = terminal()
    console.print(draw(snapshot, Screen(url), view(console)))
    return 0


def live(url: str, token: str, console: Console | None = None) -> int:
    """Shows the figures until `q` or the end of the input. A proxy that does not respond is asked again. Raises
    ValueError for an invalid URL."""
    console = console or Console()
    newest = _Newest(url, token)
    reads = sys.stdin.isatty() and os.name == "posix"
    screen: Screen | None = Screen(url, keys=reads)
    drawn: object = None
    try:
        with _keys(reads), Live(console=console, screen=True, auto_refresh=False) as shown:
            while screen is not None:
                snapshot, size = newest.snapshot, console.size
                if (id(snapshot), screen, size) != drawn:
                    drawn = (id(snapshot), screen, size)
                    shown.update(draw(snapshot, replace(screen, height=size.height), view(console)), refresh=True)
                screen = _after_keys(screen)
    finally:
        newest.stop()
    return 0


class _Newest:
    """The newest snapshot; a thread asks for it, so that keys never wait."""

    def __init__(self, url: str, token: str) -> None:
        self.snapshot = fetch(url, token)
        self._url, self._token, self._stopping = url, token, threading.Event()
        self._thread = threading.Thread(target=self._run, name="admin client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(REFRESH_S):
            found = fetch(self._url, self._token)
            if found.overview is None:  # what was known stays on the screen
                found = replace(self.snapshot, problem=found.problem)
            self.snapshot = found

    def stop(self) -> None:
        """Asks no more; waits for nothing."""
        self._stopping.set()


def fetch(url: str, token: str, count: int = KEPT) -> Snapshot:
    """A snapshot, or why there is none. Raises ValueError for an invalid URL."""
    try:
        overview = admin_client.overview(url, token)
        return Snapshot(overview, admin_client.requests(url, count, token)["requests"])
    except admin_client.RequestFailed as error:
        return Snapshot(problem=str(error))


def _after_keys(screen: Screen) -> Screen | None:
    """The screen after the next keys, or after a moment without any; None to quit."""
    if not screen.keys:
        time.sleep(KEYS_S)
    elif select.select((sys.stdin,), (), (), KEYS_S)[0]:
        typed = os.read(sys.stdin.fileno(), 1024).decode(errors="ignore")
        return pressed(screen, typed) if typed else None
    return screen


def pressed(screen: Screen, typed: str) -> Screen | None:
    """The screen after these keys; None to quit."""
    if typed.startswith(ESCAPE):  # alone, or the beginning of an arrow's sequence, which does nothing
        return replace(screen, typing=False, filter="") if typed == ESCAPE else screen
    for key in typed:
        if key == INTERRUPT or (key == "q" and not screen.typing):
            return None
        if not screen.typing:
            screen = replace(screen, typing=key in FILTER)
        elif key in ENTER:
            screen = replace(screen, typing=False)
        elif key in ERASE:
            screen = replace(screen, filter=screen.filter[:-1])
        elif key.isprintable():
            screen = replace(screen, filter=screen.filter + key)
    return screen


@contextmanager
def _keys(reads: bool) -> Iterator[None]:
    """Keys are read as they are pressed, and not shown. Afterwards the terminal is as it was."""
    if not reads:
        yield
        return
    import termios  # not on Windows
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
