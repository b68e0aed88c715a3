"""What holds for one request besides its mode, ladder and window: its control headers say it, else the settings."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.model.limits import Window


class Reported(StrEnum):
    """Which prompt the usage in an answer tells of: the one that was sent, or the one that the client asked with."""

    SENT = "sent"
    ASKED = "asked"


class OnFull(StrEnum):
    """Who makes a conversation fit that is past its window: the proxy, or the agent whose conversation it is."""

    FIT = "fit"
    AGENT = "agent"


class Terms(msgspec.Struct, frozen=True):
    """One value for a request, made in one place (`Controls.terms`). `usage`: what the answer reports as the tokens of
    the prompt, where it was cut. `effective`: `Window.effective` in place of that of the model's row; None: that one.
    `on_full`: who makes it fit.
    """

    usage: Reported = Reported.SENT
    effective: int | None = None
    on_full: OnFull = OnFull.FIT

    def on(self, window: Window) -> Window:
        """A window for a request with these terms."""
        return window if self.effective is None else replace(window, effective=self.effective)


USUAL = Terms()
