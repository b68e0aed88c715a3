"""Generated texts: prose with facts, questions about them, tool results, images."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Callable, Mapping

NAMES = "Miriam Kovac,Jonas Weber,Aylin Demir,Pedro Alves,Chen Wei,Olga Petrova,Samuel Osei,Ines Moreau".split(",")
PLACES = "Rotterdam,Gdansk,Valparaiso,Busan,Mombasa,Piraeus,Halifax,Trieste".split(",")
THINGS = "crane,pump,ballast tank,winch,radar,gangway,generator,anchor,manifest,invoice,customs form,rudder".split(",")
STATES = "failed,was repaired,was inspected,was replaced,passed its test,is overdue,leaks,was sold".split(",")
PLAIN = (
    "That sounds reasonable, thank you for looking into it.",
    "By the way, the weather was dreadful all week, and the canteen ran out of coffee again.",
    "I will write it down and come back to you once the others have had a look.",
    "As I said before, we should not rush this; the auditors come in autumn anyway.",
    "Could you also keep the tone friendly? The last letter was rather stiff.",
    "Let me know if anything is unclear, I am around until five.",
)
FOREIGN = (
    "Der Kran am Liegeplatz 7 wurde am Dienstag geprüft, die Last betrug 12,4 Tonnen.",
    "La grue du quai 7 a été contrôlée mardi, la charge était de 12,4 tonnes.",
    "Кран у причала 7 проверили во вторник, нагрузка составила 12,4 тонны.",
    "七号泊位的起重机星期二检查过，载荷为十二点四吨。",
    "تم فحص الرافعة عند الرصيف رقم ٧ يوم الثلاثاء.",
    "7番バースのクレーンは火曜日に点検され、荷重は12.4トンでした。🚢⚓️",
)
FOLLOW_UPS = ("Are you sure?", "Why?", "Go on.", "And in German, please.", "Summarise that in two sentences.", "ok")
CODE = (
    "def {0}_{1}(value: int, *, limit: int = {2}) -> int:",
    '    """Checks the {0} of berth {2}."""',
    "    if value > limit:",
    "        raise ValueError(f'{0} over {{limit}}')",
    "    return value * {2} + len('{1}')",
    "",
    "class {1}Controller:  # {0}",
    "    registry: dict[str, {1}] = {{}}",
)
LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR")


def fact(dice: random.Random) -> str:
    """One sentence with figures and names."""
    return (
        f"The {dice.choice(THINGS)} number {dice.randrange(1_000)} in {dice.choice(PLACES)} {dice.choice(STATES)} on "
        f"2024-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}; {dice.choice(NAMES)} signed for "
        f"{dice.randrange(100, 99_999):,} EUR."
    )


def prose(dice: random.Random, words: int) -> str:
    """About `words` words: facts, small talk, now and then another language."""
    found: list[str] = []
    while words > 0:
        draw = dice.random()
        found.append(fact(dice) if draw < 0.6 else dice.choice(PLAIN if draw < 0.95 else FOREIGN))
        words -= 17
    return "\n\n".join(" ".join(found[at : at + 5]) for at in range(0, len(found), 5))


def question(dice: random.Random) -> str:
    """The last user message: a question about a fact, or a follow-up without content."""
    if dice.random() < 0.2:
        return dice.choice(FOLLOW_UPS)
    thing, place = dice.choice(THINGS), dice.choice(PLACES)
    return f"Hello again! What did we say about the {thing} in {place}, and how much did {dice.choice(NAMES)} sign for?"


def rows(dice: random.Random, size: int) -> str:
    """JSON: a list of rows of equal shape within an object."""
    made = [
        {"id": f"#W{dice.randrange(10**7)}", "name": dice.choice(NAMES), "port": dice.choice(PLACES)}
        | {"tonnes": round(dice.random() * 100, 2), "open": dice.random() < 0.5, "note": dice.choice(PLAIN)}
        for _ in range(size // 200 + 1)
    ]
    return json.dumps({"total": len(made), "page": 1, "orders": made}, indent=dice.choice((None, 2)))


def tree(dice: random.Random, size: int) -> str:
    """JSON: nested objects of different shapes."""

    def node(left: int) -> object:
        if left < 120:
            return dice.choice((fact(dice), dice.randrange(10**6), None, dice.random(), ["a", 1, {}]))
        count = dice.randrange(2, 6)
        return {f"{dice.choice(THINGS)}_{n}": node(left // count) for n in range(count)}

    return json.dumps(node(size), ensure_ascii=dice.random() < 0.5)


def log(dice: random.Random, size: int) -> str:
    """Lines of a log, one of them an error."""
    lines = [
        f"2024-05-{n % 28 + 1:02}T{n % 24:02}:{n % 60:02}:07Z {dice.choice(LEVELS)} harbour.{dice.choice(THINGS)} "
        f"request={dice.randrange(16**8):08x} took {dice.randrange(999)} ms"
        for n in range(size // 90 + 1)
    ]
    lines.insert(dice.randrange(len(lines) + 1), "Traceback (most recent call last):\n  ValueError: crane over limit 7")
    return "\n".join(lines)


def code(dice: random.Random, size: int) -> str:
    """Numbered lines of Python."""
    lines = [
        CODE[n % len(CODE)].format(dice.choice(THINGS).split()[0], dice.choice(PLACES), dice.randrange(99))
        for n in range(size // 40 + 1)
    ]
    return "\n".join(f"{n:6}\t{line}" for n, line in enumerate(lines, 1))


def table(dice: random.Random, size: int) -> str:
    """Comma-separated values, or a Markdown table."""
    bar = dice.choice((",", " | ", "\t"))
    lines = [bar.join(("id", "who", "where", "what", "tonnes"))]
    for n in range(size // 50 + 1):
        cells = dice.choice(NAMES), dice.choice(PLACES), dice.choice(THINGS), f"{dice.random() * 100:.1f}"
        lines.append(bar.join((str(n), *cells)))
    return "\n".join(lines)


def diff(dice: random.Random, size: int) -> str:
    """A diff of several files."""
    found = []
    for n in range(size // 400 + 1):
        path = f"src/{dice.choice(THINGS).replace(' ', '_')}_{n}.py"
        found.append(f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,4 +1,5 @@")
        found += [dice.choice("+- ") + CODE[k].format("crane", "Busan", k) for k in range(8)]
    return "\n".join(found)


def page(dice: random.Random, size: int) -> str:
    """A page of HTML."""
    found = "".join(f"<li class='row'><b>{dice.choice(NAMES)}</b> {fact(dice)}</li>\n" for _ in range(size // 150 + 1))
    return f"<!doctype html><html><head><title>Berths</title></head><body><ul>\n{found}</ul></body></html>"


def book(dice: random.Random, size: int) -> str:
    """Paragraphs under headings."""
    return "\n\n".join(f"## Chapter {n}\n\n{prose(dice, 150)}" for n in range(size // 1_000 + 1))


def line(dice: random.Random, size: int) -> str:
    """One line without a space."""
    return dice.choice("xÄ漢{") * (size // 4)


RESULTS: Mapping[str, Callable[[random.Random, int], str]] = {
    "list_orders": rows,
    "read_state": tree,
    "read_log": log,
    "read_file": code,
    "query": table,
    "git_diff": diff,
    "fetch": page,
    "manual": book,
    "dump": line,
}


def image(side: int) -> str:
    """A PNG `side` pixels wide, as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side * 2 // 3 + 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes(side)) * (side * 2 // 3 + 1), 6)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(whole).decode()
