"""The same conversation is cut the same way by another process, whatever that process saw before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.laws.dialects import DIALECTS

ROOT = Path(__file__).parents[2]
SCRIPT = """
import hashlib, json, random, sys
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.tokens.meter import meter_for
from proxy.model.limits import Window
from proxy.model.plan import Facts
from tests.laws.dialects import DIALECTS, INVENTED
from tests.laws.meters import CharMeter
from tests.tokens.remembering import Remembering

dice = random.Random(7)
WORDS = [dice.choice("bcdfgklmnprst") + dice.choice("aeiou") + dice.choice("lmnrst") + str(i % 9) for i in range(400)]
say = lambda n: " ".join(dice.choices(WORDS, k=n))

def talk(turns):
    told = [{"role": "system", "content": say(20)}]
    for i in range(turns):
        told += [{"role": "user", "content": say(30)}, {"role": "assistant", "content": say(40)}]
    return told

def run(turns):
    told = [{"role": "system", "content": say(20)}, {"role": "user", "content": say(30)}]
    for i in range(turns):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"q": say(9)})}}
        rows = json.dumps([{"name": say(1), "text": say(6), "n": j} for j in range(dice.randrange(3, 90))])
        told += [{"role": "assistant", "content": say(8), "tool_calls": [call]}]
        text = dice.choice([rows, say(300).replace("a0", "\\n")])
        told += [{"role": "tool", "tool_call_id": f"c{i}", "content": text}]
    return told

memory, ladders = Remembering(), load_rules(None).ladders
dialect = next(dialect for dialect in DIALECTS if dialect.name == sys.argv[2])

def sent(told, ladder, cut=False):
    told = [{**message, "x-uid": i} for i, message in enumerate(told)]
    prompt = dialect.parse(dialect.body(told, {"max_tokens": 200}, {"model": "gpt-4o"}, {}))
    meter = CharMeter() if dialect is INVENTED else meter_for(prompt, "gpt-4o", memory)
    made = plan(prompt, ladders[ladder], Facts(Window(5000), meter))
    assert made.fits and (made.changed or not cut)
    return dialect.render(prompt, made)

chats, runs = talk(120), run(60)
if sys.argv[1] == "replayed":
    for end in range(20, len(chats), 14):
        sent([*chats[:end], {"role": "user", "content": say(5)}], "default")
    for end in range(2, len(runs), 4):
        sent(runs[:end], "default")
last = {"role": "user", "content": " ".join(WORDS[:12])}
asked, went_on = [*chats, last], [*runs, last]
for told, ladder in ((asked, "default"), (asked, "chat"), (runs, "default"), (went_on, "agent")):
    print(hashlib.sha256(sent(told, ladder, cut=True)).hexdigest())
"""


def printed(how: str, seed: str, dialect: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, how, dialect]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()


@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
def test_a_replica_that_saw_every_turn_and_one_that_sees_only_the_last_send_the_same_bytes(dialect: str) -> None:
    first = printed("replayed", "1", dialect)
    assert len(set(first)) == 4
    assert printed("fresh", "2", dialect) == first
