"""A Chromium for tests of the page: it tells of everything that a page should never do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, expect, sync_playwright

WAIT_MS = 20_000  # machines that run tests are slow
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """The browser, with further flags. Where none is installed the tests are skipped, and fail in CI (`CI=true`)."""
    binary = shutil.which("chromium")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed: CI must have one (tests/servers_setup.sh)")
        pytest.skip("chromium is not installed: these tests need a real one (apt-get install chromium)")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Tab:
    """A tab, and what it did that it must not do: errors on the console (violations of the policy are among them),
    requests to elsewhere, dialogs."""

    page: Page
    origin: str
    faults: list[str] = field(default_factory=list)
    lost: bool = False  # whether the proxy may be away meanwhile

    def go(self, address: str = "") -> None:
        """Loads the page at an address below its origin, such as `#/models`."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.origin}/{address}")

    def at(self, address: str) -> None:
        """Moves within the page."""
        self.page.evaluate("address => { location.hash = address }", address.removeprefix("#"))

    def live(self) -> None:
        """Waits until the stream is open."""
        expect(self.page.locator("#connection")).to_have_text("live")

    def find(self, selector: str) -> Locator:
        """Elements."""
        return self.page.locator(selector)

    def ask(self, script: str, argument: Any = None) -> Any:
        """The value of a function of the page's."""
        return self.page.evaluate(script, argument)

    def text(self, selector: str = "main") -> str:
        """The text that is seen of an element."""
        return self.page.locator(selector).inner_text()

    def watch(self) -> None:
        """Notes what must not happen."""
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self._asked(dialog))
        self.page.on("request", lambda request: self._went(request.url))

    def _asked(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not (self.lost and "Failed to load resource" in text):
            self.faults.append(f"{kind}: {text}")

    def _went(self, url: str) -> None:
        there = urlsplit(url)
        if there.scheme not in ("about", "data") and f"{there.scheme}://{there.netloc}" != self.origin:
            self.faults.append(f"request: {url}")


@contextmanager
def tab(browser: Browser, origin: str, width: int = 1280, height: int = 900, **options: Any) -> Iterator[Tab]:
    """A tab of its own session at an origin. Fails where it did what it must not do."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    opened = Tab(context.new_page(), origin)
    opened.watch()
    try:
        yield opened
    finally:
        context.close()
    assert opened.faults == []
