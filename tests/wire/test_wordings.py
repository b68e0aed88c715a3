"""What a table of refusals may hold, and what is said of one that holds something else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from proxy.wire.wordings import Rules, compile_rules


def name(text: str) -> dict[str, Any]:
    return {"name": text}


CODE: dict[str, Any] = {"code": ["x"]}
PATTERNS: dict[str, Any] = {"patterns": ["x"]}


def test_an_empty_table_knows_nothing() -> None:
    assert compile_rules({}) == Rules()


def test_a_row_keeps_what_it_says() -> None:
    row = {
        "name": "r",
        "patterns": ["{limit} max"],
        "figures": ["{n} of {prompt}"],
        "status": [400],
        "code": ["A.B"],
        "bounds": "input",
        "at_least": True,
        "limit": 7,
        "first": True,
    }
    rules = compile_rules({"never": [429], "figures": ["{excess}"], "refusal": [row], "veto": [{**name("v"), **CODE}]})
    made = rules.refusals[0]
    assert (made.name, made.status, made.bounds, made.at_least) == ("r", frozenset({400}), "input", True)
    assert (made.limit, made.first) == (7, True)
    assert [sorted(p.groupindex) for p in (*made.patterns, *made.figures, *rules.figures)] == [
        ["limit"],
        ["prompt"],
        ["excess"],
    ]
    assert made.code and made.code.search("type: a.b") and not made.code.search("type: axb")
    assert (rules.never, rules.vetoes[0].name) == (frozenset({429}), "v")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"refusals": []}, "unknown key 'refusals'"),
        ({"never": [9]}, "status and never must be lists of HTTP statuses"),
        ({"never": [True]}, "status and never must be lists of HTTP statuses"),
        ({"figures": "x"}, "patterns and figures must be lists of texts"),
        ({"figures": ["{size}"]}, "pattern '{size}': unknown group 'size', known are limit, prompt"),
        ({"refusal": {"name": "r"}}, "refusal: must be an array of tables"),
        ({"veto": ["v"]}, "veto: must be an array of tables"),
        ({"refusal": [PATTERNS]}, "refusal row 1 (no name): a row needs a name"),
        ({"refusal": [{**PATTERNS, "name": 7}]}, "refusal row 1 (7): the name must be a text"),
        ({"refusal": [name("r")]}, "refusal row 1 (r): a row needs patterns or a code"),
        ({"refusal": [{**name("r"), **PATTERNS}, {**name("r"), **CODE}]}, "refusal row 2 (r): the name is taken"),
        ({"refusal": [{**name("r"), **PATTERNS, "pattern": 1}]}, "refusal row 1 (r): unknown key 'pattern'"),
        ({"veto": [{**name("v"), **PATTERNS, "bounds": "input"}]}, "veto row 1 (v): unknown key 'bounds'"),
        ({"refusal": [{**name("r"), "patterns": ["("]}]}, "refusal row 1 (r): pattern '(': missing )"),
        ({"refusal": [{**name("r"), "patterns": [""]}]}, "refusal row 1 (r): a pattern must be a text, not ''"),
        ({"refusal": [{**name("r"), "patterns": ["TPM"]}]}, "pattern 'TPM': texts are matched in lower case"),
        ({"refusal": [{**name("r"), "patterns": [r"\S(?P<Limit>\d)"]}]}, "texts are matched in lower case"),
        ({"refusal": [{**name("r"), "patterns": ["(?P<size>x)"]}]}, "unknown group 'size'"),
        ({"refusal": [{**name("r"), "patterns": ["over {limit"]}]}, "a figure is a word in braces, such as {limit}"),
        ({"refusal": [{**name("r"), "code": "x"}]}, "code must be a list of texts or numbers"),
        ({"refusal": [{**name("r"), **PATTERNS, "status": [4000]}]}, "status and never must be lists"),
        ({"refusal": [{**name("r"), **PATTERNS, "bounds": "output"}]}, "bounds must be one of window, input, "),
        ({"refusal": [{**name("r"), **PATTERNS, "at_least": 1}]}, "at_least and first must be true or false"),
        ({"refusal": [{**name("r"), **PATTERNS, "limit": True}]}, "limit must be a number of tokens"),
        ({"refusal": [{**name("r"), **PATTERNS, "limit": 0}]}, "limit must be a number of tokens"),
    ],
)
def test_a_wrong_table_is_refused_with_row_and_reason(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        compile_rules(table)


def test_all_that_is_wrong_is_told_a_line_each() -> None:
    rows = [{**name("a"), "patterns": ["("]}, {**name("b"), **PATTERNS}, {**name("c"), **PATTERNS, "bounds": "x"}]
    with pytest.raises(ValueError) as caught:
        compile_rules({"refusal": rows, "veto": [{}], "never": [1], "figures": 5, "more": 1})
    assert [line.partition(":")[0] for line in str(caught.value).split("\n")] == [
        "unknown key 'more'",
        "refusal row 1 (a)",
        "refusal row 3 (c)",
        "veto row 1 (no name)",
        "patterns and figures must be lists of texts",
        "status and never must be lists of HTTP statuses",
    ]
