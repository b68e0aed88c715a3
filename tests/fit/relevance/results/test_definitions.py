"""Where functions, classes and sections of a text are, by name."""

from __future__ import annotations

from proxy.fit.relevance.results.definitions import PLACES, bare, definitions_of

SOURCE = """import os

@cached
@traced
def first(a):
    return a


class Second:
    def method(self):
        return 1

    def other(self):
        return 2
"""


def parts(text: str, name: str) -> list[str]:
    lines = text.split("\n")
    return ["\n".join(lines[first:last]) for first, last in definitions_of(text).get(name, ())]


def test_a_function_has_its_decorators_and_no_blank_lines_behind_it() -> None:
    assert parts(SOURCE, "first") == ["@cached\n@traced\ndef first(a):\n    return a"]
    assert parts(SOURCE, "third") == []


def test_a_class_has_its_methods_and_they_have_themselves() -> None:
    (second,) = parts(SOURCE, "Second")
    assert second.startswith("class Second") and second.endswith("return 2")
    assert parts(SOURCE, "method") == ["    def method(self):\n        return 1"]


def test_of_a_name_that_is_defined_often_the_first_few_count() -> None:
    source = "\n".join(f"class C{i}:\n    def run(self):\n        return {i}\n" for i in range(2 * PLACES))
    assert parts(source, "run") == [f"    def run(self):\n        return {i}" for i in range(PLACES)]


def test_the_numbers_that_a_tool_puts_before_lines_change_nothing() -> None:
    numbered = "\n".join(f"{i:6}\t{line}" for i, line in enumerate(SOURCE.split("\n"), 1))
    assert definitions_of(numbered)["first"] == definitions_of(SOURCE)["first"]
    assert bare("  12→  x = 1 ") == "x = 1" and bare("  x = 1") == "x = 1"


def test_a_section_is_found_by_its_title() -> None:
    text = "# Guide\n\nintro\n\n## Set up\n\ndo this\n\n## Use\n\ndo that"
    assert parts(text, "set up") == ["## Set up\n\ndo this"]
