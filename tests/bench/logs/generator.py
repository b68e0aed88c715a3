"""Makes logs in six formats, each with one line (the needle) that a question is about. The same seed gives the same
logs.

Every line has ids, times and ports of its own. Placeholders of a line: {ip} {port} {pid} {mac} {user} {host}; {n} has
one to three digits, {few} one or two, {big} six to ten; {ms} milliseconds; {hex} 8 and {hex32} 32 hexadecimal digits;
{uuid}; {token} letters and digits; {id} the id that the question names. "+stack" appends a stack trace.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from string import ascii_letters, digits
from typing import Any

FORMATS = ("syslog", "openstack", "java", "nginx", "json", "macos")
LINES = (250, 1_500)  # fewest and most lines of a log
NOISE = (0.0, 0.03, 0.15)  # shares of warnings among the lines
USERS = "amara bjorn chen dmitri elena farid greta hiro ines jonas kavya liam mona nils olga pedro".split()
HOSTS = "web db cache edge build mail lab node".split()
PLACEHOLDER = re.compile(r"\{(\w+)\}")
STACK = " +stack"
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "okhttp/4.12", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4)")
METHODS = ("com.acme.core.Pipeline.run", "java.util.concurrent.FutureTask.run", "io.netty.channel.Loop.next")


@dataclass(frozen=True, slots=True)
class Case:
    """A log, its needle (a whole line of it), and a question about that line."""

    format: str
    kind: str
    log: str
    needle: str
    question: str


def cases(variant: str, seed: int, each: int) -> Iterator[Case]:
    """`each` cases for every needle of a variant ("first", "second")."""
    material = tomllib.loads((Path(__file__).parent / f"{variant}.toml").read_text("utf-8"))
    for name in FORMATS:
        for number, needle in enumerate(material[name]["needles"]):
            for again in range(each):
                dice = random.Random(f"{variant} {seed} {name} {number} {again}")
                yield _case(name, material[name], needle, material["questions"], dice)


def _case(
    name: str, texts: Mapping[str, Any], needle: Mapping[str, Any], asked: Mapping[str, Any], dice: random.Random
) -> Case:
    count = dice.randint(*LINES)
    noise = dice.choice(NOISE) if needle["kind"] != "warning" else 0.0
    style, now = dice.randrange(1 << 16), datetime(2026, dice.randint(1, 12), dice.randint(1, 27), dice.randint(0, 20))
    place = dice.randrange(count // 10, count - count // 10)
    named = {"few": str(dice.randint(2, 40))}
    named["id"] = filled(needle.get("id", ""), dice, named)
    found = []
    for at in range(count):
        now += timedelta(milliseconds=dice.randint(1, 4_000))
        level, line = needle["level"], needle["line"]
        if at != place:
            level, among = ("WARN", "warnings") if dice.random() < noise else ("INFO", "ordinary")
            line = dice.choice(texts[among])
        found.append(written(name, level, filled(line, dice, named if at == place else {}), now, style, dice))
    question = dice.choice(needle.get("ask") or asked[needle["kind"]])
    text = "\n".join(found)
    return Case(name, needle["kind"], text, found[place].partition("\n")[0], filled(question, dice, named))


def filled(text: str, dice: random.Random, named: Mapping[str, str]) -> str:
    """The text with a fresh value for every placeholder; `named` has the values that are given."""
    return PLACEHOLDER.sub(lambda found: named.get(found[1]) or FRESH[found[1]](dice), text)


def _hex(dice: random.Random, count: int) -> str:
    return f"{dice.getrandbits(4 * count):0{count}x}"


FRESH: Mapping[str, Callable[[random.Random], str]] = {
    "ip": lambda dice: ".".join(str(dice.randint(1, 254)) for _ in range(4)),
    "port": lambda dice: str(dice.randint(1_024, 65_535)),
    "pid": lambda dice: str(dice.randint(100, 65_000)),
    "n": lambda dice: str(dice.randint(1, 10 ** dice.randint(1, 3))),
    "few": lambda dice: str(dice.randint(2, 40)),
    "big": lambda dice: str(dice.randint(10**5, 10 ** dice.randint(6, 10))),
    "ms": lambda dice: f"{dice.expovariate(1 / 80):.1f}",
    "hex": lambda dice: _hex(dice, 8),
    "hex32": lambda dice: _hex(dice, 32),
    "uuid": lambda dice: "-".join(_hex(dice, count) for count in (8, 4, 4, 4, 12)),
    "mac": lambda dice: ":".join(_hex(dice, 2) for _ in range(6)),
    "user": lambda dice: dice.choice(USERS) + dice.choice(["", "", str(dice.randint(1, 99))]),
    "host": lambda dice: f"{dice.choice(HOSTS)}-{dice.randint(1, 40):02}.example.net",
    "token": lambda dice: "".join(dice.choices(ascii_letters + digits, k=dice.randint(14, 24))),
}


def written(name: str, level: str, line: str, now: datetime, style: int, dice: random.Random) -> str:
    """A line of a log in its format. `style` chooses among the variants of the format, the same for a whole log."""
    component, _, text = line.partition(" | ")
    text, _, stack = text.partition(STACK)
    whole = WRITERS[name](level, component, text, now, style, dice)
    return whole + (_trace(dice) if line.endswith(STACK) else stack)


def _trace(dice: random.Random) -> str:
    frames = [f"\n\tat {dice.choice(METHODS)}(Source.java:{dice.randint(10, 900)})" for _ in range(8)]
    return "".join(frames[: dice.randint(2, 8)])


def _syslog(level: str, component: str, text: str, now: datetime, style: int, dice: random.Random) -> str:
    when = (f"{now:%b %d %H:%M:%S}", now.isoformat() + "+00:00")[style % 2]
    return f"{when} {HOSTS[style % 7]}-{style % 9} {component}: {text}"


def _openstack(level: str, component: str, text: str, now: datetime, style: int, dice: random.Random) -> str:
    shown = "WARNING" if level == "WARN" else level
    asked = f"req-{FRESH['uuid'](dice)} {_hex(dice, 32)} {_hex(dice, 32)} - - -" if style % 3 else "-"
    when = f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03}"
    return f"{when} {2_000 + style % 900} {shown} {component} [{asked}] {text}"


def _java(level: str, component: str, text: str, now: datetime, style: int, dice: random.Random) -> str:
    when = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
    thread = f"[pool-{style % 5}-thread-{dice.randint(1, 64)}]"
    shown = "WARNING" if level == "WARN" and style % 4 == 3 else level
    shapes = (f"{when} {shown} {thread} {component}: {text}", f"{when} {thread} {shown:5} {component} - {text}")
    return shapes[style % 2]


def _nginx(level: str, component: str, text: str, now: datetime, style: int, dice: random.Random) -> str:
    if component == "error":
        return f"{now:%Y/%m/%d %H:%M:%S} {text}"
    request, _, status = text.rpartition(" ")
    asked = f'"{request} HTTP/{(1.1, 2.0)[style % 2]}" {status} {dice.randint(0, 90_000)} "-" "{dice.choice(AGENTS)}"'
    took = f" {dice.expovariate(9):.3f}" if style % 3 == 0 else ""
    return f"{FRESH['ip'](dice)} - - [{now:%d/%b/%Y:%H:%M:%S} +0000] {asked}{took}"


def _json(level: str, component: str, text: str, now: datetime, style: int, dice: random.Random) -> str:
    names = (("ts", "level", "logger"), ("@timestamp", "severity", "service"), ("time", "lvl", "component"))[style % 3]
    shown = level.upper() if style % 2 else level.lower()
    head = dict(zip(names, (now.isoformat() + "Z", shown, component), strict=True))
    return json.dumps({**head, **json.loads(text), "trace_id": _hex(dice, 32)})


def _macos(level: str, component: str, text: str, now: datetime, style: int, dice: random.Random) -> str:
    if style % 2:
        return f"{now:%b %d %H:%M:%S} calvin-{style % 9} {component}: {text}"
    process, _, pid = component.rstrip("]").partition("[")
    shown = {"ERROR": "Error", "WARN": "Default"}.get(level, "Default")
    thread = f"0x{dice.getrandbits(20):x}"
    return f"{now:%Y-%m-%d %H:%M:%S.%f}+0100 {thread:10} {shown:11} 0x0 {pid or 1:>8} 0 {process}: {text}"


WRITERS: Mapping[str, Callable[..., str]] = {
    "syslog": _syslog,
    "openstack": _openstack,
    "java": _java,
    "nginx": _nginx,
    "json": _json,
    "macos": _macos,
}
