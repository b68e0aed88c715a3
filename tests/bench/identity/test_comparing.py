import json
from collections import Counter
from typing import Any

import pytest

from tests.bench.identity.comparing import different, verdict
from tests.bench.identity.recording import requests_of
from tests.bench.identity.requests import KINDS
from tests.bench.identity.settings import SETTINGS


def record(body: str, status: int = 400, sent: str = "hi", **more: Any) -> str:
    answer = {"status": status, "headers": [["content-length", str(len(body))]], "body": body}
    upstream = [{"headers": [["content-length", str(len(sent))]], "bytes": len(sent), "digest": "", "body": sent}]
    return json.dumps({"name": "a/b/1.0", "kind": "chat", "upstream": upstream, "answer": answer, **more})


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [
        (record("{}"), record("{}"), "identical"),
        (
            record('{"error":{"message":"a \\"b\\"","code":"x"}}'),
            record('{"error":{"message":"c","code":"x"}}'),
            "wording",
        ),
        (record('{"error":{"message":"a","code":"x"}}'), record('{"error":{"message":"a","code":"y"}}'), "different"),
        (record('{"error":{"message":"a"}}'), record('{"error": {"message":"a"}}'), "different"),
        (record("Bad"), record("Worse"), "wording"),
        (record("Good", 200), record("Better", 200), "different"),
        (record("", sent="x [… 5 tokens left out …]"), record("", sent="x [… 5 tokens removed …]"), "wording"),
        (record("", sent="x [… 5 tokens left out …]"), record("", sent="y [… 5 tokens left out …]"), "different"),
        (record("{}"), None, "missing"),
    ],
)
def test_differences_in_words_are_told_from_others(before: str, after: str | None, result: str) -> None:
    assert verdict(before, after, wording=True) == result


def test_wording_counts_as_a_difference_unless_it_is_tolerated() -> None:
    assert verdict(record("Bad"), record("Worse"), wording=False) == "different"


def test_differences_name_their_fields() -> None:
    found = different(record('{"a":{"b":1}}'), record('{"a":{"b":2}}'))
    assert found == ["answer.body.a.b: '1' -> '2'"]


def test_requests_depend_on_the_seed_alone() -> None:
    def made(seed: int) -> list[tuple[str, bytes | None]]:
        return [(named.name, named.case.body) for named in requests_of(SETTINGS[0], KINDS, 60, seed, Counter())]

    assert made(1) == made(1) != made(2)
    assert len({name for name, _ in made(1)}) == 60
