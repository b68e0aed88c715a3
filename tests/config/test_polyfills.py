"""Which upstreams do not know the edits of context."""

from __future__ import annotations

import tomllib

import pytest

from proxy.config.polyfills import Polyfill, is_polyfilled, parse_polyfills


def test_a_row_names_hosts_by_globs_in_any_case() -> None:
    rows, problems = parse_polyfills(tomllib.loads('[[polyfill]]\nname = "a"\nhosts = ["10.*", "LLM.internal"]'))
    assert problems == [] and rows == (Polyfill("a", ("10.*", "LLM.internal")),)
    assert is_polyfilled(rows, "10.0.0.1") and is_polyfilled(rows, "llm.INTERNAL")
    assert not is_polyfilled(rows, "api.anthropic.com") and not is_polyfilled((), "10.0.0.1")


@pytest.mark.parametrize(
    "row",
    [
        'name = "a"',
        'name = ""\nhosts = ["x"]',
        'name = "a"\nhosts = []',
        'name = "a"\nhosts = ["http://x"]',
        'name = "a"\nhosts = ["x:80"]',
        'name = "a"\nhosts = ["x"]\nedits = []',
    ],
)
def test_a_wrong_row_is_a_problem(row: str) -> None:
    rows, problems = parse_polyfills(tomllib.loads(f"[[polyfill]]\n{row}"))
    assert rows == () and len(problems) == 1 and problems[0].startswith("polyfill 1")
