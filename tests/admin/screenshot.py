"""Takes the picture of the page for the README, of the scripted day:

python -m tests.admin.screenshot proxy/admin/page.png
"""

from __future__ import annotations

import sys

from playwright.sync_api import expect

from tests.admin import day
from tests.admin.chromium import chromium, tab

WIDTH, HEIGHT = 1200, 1100
LAST = (*day.SMALL[::60], day.CUT[2], day.CUT[0], day.SMALL[0], day.HEALED[3])  # at the head of the list


def main(file: str) -> int:
    """Writes the picture to a file."""
    with day.place() as here, chromium() as browser:
        here.play()
        here.play(LAST)
        here.settled(len(day.DAY) + len(LAST))
        with tab(browser, here.page, WIDTH, HEIGHT) as one:
            one.go()
            one.live()
            expect(one.find("#requests tbody tr").first).to_be_visible()
            one.page.screenshot(path=file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
