"""What an error quotes of a request is known in whatever form; what an upstream says itself is no quotation."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from proxy.model.outcome import Quote
from proxy.wire.echoes import LONGEST, PIECE, echoes
from proxy.wire.refusals import compile_rules, recognise

RULES = compile_rules(tomllib.loads((Path(__file__).parents[2] / "rules/refusals.toml").read_text("utf-8")))
CLAIM = "maximum context length is 200 tokens"


def echoed(error: str, said: str | bytes, code: str | None = None) -> bool:
    """Whether an error that is taken for a refusal quotes what a client said."""
    body = json.dumps({"error": {"message": error, "code": code}}).encode()
    found = recognise(RULES, 400, body)
    assert found is not None and found.quotes
    return echoes(found.quotes, said if isinstance(said, bytes) else json.dumps({"messages": [said]}).encode())


QUOTED = [
    (CLAIM, CLAIM),
    (CLAIM, CLAIM.upper()),
    (CLAIM, CLAIM.replace(" ", "\n\n")),
    (CLAIM, CLAIM.replace(" ", "_")),
    (CLAIM, '"maximum" context "length" is "200" tokens'),
    (CLAIM, json.dumps(json.dumps(CLAIM))),
    (CLAIM, CLAIM.replace(" ", "\u2003" * 300)),
    (CLAIM, CLAIM.replace(" ", " " + '"' * 300 + " ")),
    (CLAIM, CLAIM.replace(" ", "\f")),
    ("m'aximum c'ontext l'ength is 2'00 t'okens",) * 2,
    ("m\\aximum context length o\\f 200 tokens",) * 2,
    ("prompt is too long: 900 tokens &gt; 200 maximum",) * 2,
    ("maximum context length is 200...", CLAIM + " and more"),
    ("too many tokens: '...ximum context length is 200 tokens'", CLAIM),
    ("too many tokens: '…00 tokens limit'", "a 200 tokens limit"),
    ("too many tokens: the context length is 200", "length is 200 or so"),
    ("limited to: 200 tokens limit. Too many tokens", "200 tokens limit"),
    ("maximum context length is 1,200 tokens", "maximum context length is 1200 tokens"),
    ("maximum context length is 1200 tokens", "maximum context length is 1,200 tokens"),
    ("the prompt is too long", "my prompt is too long"),
    ("超出上下文", "他说超出上下文了"),
]


@pytest.mark.parametrize(("error", "said"), QUOTED)
def test_a_quotation_is_known_in_any_form(error: str, said: str) -> None:
    assert echoed(error, said)


@pytest.mark.parametrize(
    "said",
    [
        CLAIM.replace(" ", "\\u0020"),
        CLAIM.replace("2", "\\u0032"),
        "m\\u0061ximum context length is two hundred",
        "".join(f"\\u{ord(c):04X}" for c in CLAIM),
    ],
)
def test_letters_and_digits_as_escapes_hide_nothing(said: str) -> None:
    assert echoed(CLAIM, b'{"messages":["' + said.encode() + b'"]}')


@pytest.mark.parametrize(
    "said",
    [
        "Say hello.",
        "There are 200 sheep in 2000 tokens of text; the context is short and its length is unknown.",
        "Escapes that encoders write: \\u003c \\u0026 \\u00e4",
        "4096 files, 8192 lines",
    ],
)
@pytest.mark.parametrize("window", [200, 4096, 8192, 131072])
def test_what_an_upstream_says_itself_is_no_quotation(said: str, window: int) -> None:
    error = f"This model's maximum context length is {window} tokens. However, your messages resulted in 9999 tokens."
    assert not echoed(error, said, "context_length_exceeded")


def test_other_things_that_a_client_says_are_looked_at_too() -> None:
    assert echoes((Quote(("200",), "is", "tokens", True),), b"{}", b"x\nlength is 200\ny")


def test_a_request_that_is_too_long_to_be_searched_may_say_anything() -> None:
    quotes = (Quote(("200",), "is", "tokens", True),)
    assert not echoes(quotes, b"x " * (LONGEST // 2))
    assert echoes(quotes, b"x " * (LONGEST // 2), b"y")


@pytest.mark.parametrize("before", range(PIECE - 60, PIECE + 30, 9))
def test_a_quotation_is_known_wherever_it_stands(before: int) -> None:
    assert echoed(CLAIM, "x" * (before - 40) + " " + CLAIM.replace(" ", "\n"))


def test_what_cannot_be_read_in_parts_proves_nothing() -> None:
    assert echoes((Quote(("200",), "is", "tokens", True),), b"x" * (PIECE + 1))


def test_a_status_alone_quotes_nobody() -> None:
    found = recognise(RULES, 413, b"")
    assert found is not None and not echoes(found.quotes, b"anything")
