"""What turns claim goes on from where it was remembered, and nothing that is remembered changes."""

from __future__ import annotations

from proxy.config.rules import load_rules
from proxy.fit.claims.calls import Result, results_of
from proxy.fit.claims.named import names_in
from proxy.fit.claims.turns import NO_TURNS, NamingTurns, Turns
from proxy.fit.plan import start
from proxy.model.conversation import Message
from tests.makers import WordMeter, facts, ladder, prompt, tool_round, user, words

CONVENTIONS = load_rules(None).ladders["default"].conventions
ASKED = "Why does load_cargo in src/crane.py fail, 4711?"
FILE = f"def load_cargo(x):\n    {words(20)}\n    return x\n"


def run(*texts: str) -> tuple[Message, list[Result]]:
    """A turn that names something, and the results behind it."""
    rounds = [m for i, text in enumerate(texts) for m in tool_round(f"c{i}", text, "read", '{"path": "src/crane.py"}')]
    blocks = start(prompt([user(ASKED), *rounds]), ladder(), facts(9_999)).blocks
    found = [r for place, block in enumerate(blocks) for r in results_of(block, place, CONVENTIONS)]
    return blocks[0].messages[0], found


def read(asked: Message, results: list[Result], turns: Turns = NO_TURNS, since: int = 0) -> Turns:
    """What is claimed behind these results, those before `since` being known."""
    reader = NamingTurns(results, WordMeter(), several=False)
    if since:
        reader.go_on(turns, asked, names_in(ASKED))
    else:
        reader.open(asked, names_in(ASKED), ())
    for result in results[since:]:
        reader.add(result)
    return reader.now()


def test_a_longer_run_goes_on_from_what_was_claimed_before() -> None:
    asked, results = run(FILE, f"{FILE}\n4711", "nothing", FILE)
    for since in range(1, len(results)):
        before = read(asked, results[:since])
        assert read(asked, results, before, since).closing() == read(asked, results).closing()


def test_what_is_remembered_stays_as_it_was() -> None:
    asked, results = run(FILE, FILE, FILE)
    before = read(asked, results[:1])
    told = before.closing()
    read(asked, results, before, 1)
    assert before.closing() == told and [claim.until for claim in told[0][2]] == [None]


def test_a_result_that_nobody_named_makes_no_new_value() -> None:
    asked, results = run(FILE, "nothing of it")
    results[1].call = results[1].call.__class__("c1", "shell", "")
    before = read(asked, results[:1])
    reader = NamingTurns(results, WordMeter(), several=False)
    reader.go_on(before, asked, names_in(ASKED))
    reader.add(results[1])
    assert reader.now() is before and before.size == 1
