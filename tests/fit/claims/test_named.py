"""What a user's turn names."""

from __future__ import annotations

import pytest

from proxy.fit.claims.named import named_definitions, names_in

ASKS = (
    "Rework `load` in ./src/io.py as parse_rows(x) does, see Reader.nextRow and lib/util.ts; order SO-4711-A, not 12."
)


def test_definitions_paths_and_ids_are_told_apart() -> None:
    found = names_in(ASKS)
    assert found.definitions == ("load", "parse_rows", "nextRow")
    assert {*found.paths} >= {"src/io.py", "lib/util.ts"}
    assert found.ids == ("SO-4711-A",)


def test_plain_words_and_single_numbers_name_nothing() -> None:
    assert not names_in("Please run the tests again, all 12 of them, and tell me what you think of the copy.")


def test_a_section_is_named_by_its_title_in_quotation_marks() -> None:
    assert names_in('What does "Rolling back a release" say?').definitions == ("rolling back a release",)


def test_only_the_ends_of_a_pasted_text_are_read() -> None:
    text = f"Fix first_one.\n{'blah ' * 4000}\nhidden_name\n{'blah ' * 4000}\nSee last_one."
    assert names_in(text).definitions == ("first_one", "last_one")


@pytest.mark.parametrize(
    "hostile", ["a" * 100_000, "a-" * 50_000, "./" * 50_000, "`" * 50_001, "f(" * 50_000, "'\"" * 9]
)
def test_hostile_texts_are_read_in_linear_time(hostile: str) -> None:
    names_in(hostile)  # a pattern that is quadratic in 12,000 characters would take minutes here


CODE = {
    "python": (
        "def first(a):\n    return a\n\n\n@wraps(first)\ndef second(b):\n    x = b\n\n    return x\n\n\nTAIL = 1\n",
        "second",
    ),
    "typescript": (
        "export class Box {\n  open() {\n    return 1;\n  }\n}\n\nexport function shut(a: number) {\n  return a;\n}\n",
        "shut",
    ),
    "go": ("package p\n\nfunc Open() int {\n\treturn 1\n}\n\nfunc Shut(a int) int {\n\treturn a\n}\n", "Shut"),
    "rust": ("#[inline]\npub fn open() -> u8 {\n    1\n}\n\n#[inline]\npub fn shut(a: u8) -> u8 {\n    a\n}\n", "shut"),
    "java": (
        "class Box {\n  @Override\n  public int open() {\n    return 1;\n  }\n\n"
        "  int shut(int a) {\n    return a;\n  }\n}\n",
        "shut",
    ),
    "c": ("int open_it(void) {\n  return 1;\n}\n\nstatic int shut_it(int a) {\n  return a;\n}\n", "shut_it"),
    "ruby": ("def open\n  1\nend\n\ndef shut(a)\n  a\nend\n", "shut"),
    "markdown": ("# Guide\n\nHello.\n\n## Rolling back\n\nStop it.\n\nStart it.\n\n## Next\n\nMore.\n", "rolling back"),
}
WHOLE = {
    "python": "@wraps(first)\ndef second(b):\n    x = b\n\n    return x",
    "typescript": "export function shut(a: number) {\n  return a;\n}",
    "go": "func Shut(a int) int {\n\treturn a\n}",
    "rust": "#[inline]\npub fn shut(a: u8) -> u8 {\n    a\n}",
    "java": "  int shut(int a) {\n    return a;\n  }",
    "c": "static int shut_it(int a) {\n  return a;\n}",
    "ruby": "def shut(a)\n  a\nend",
    "markdown": "## Rolling back\n\nStop it.\n\nStart it.",
}


@pytest.mark.parametrize("language", CODE)
@pytest.mark.parametrize("numbered", [False, True])
def test_a_definition_is_found_whole_in_each_language(language: str, numbered: bool) -> None:
    def shown(text: str, first: int) -> str:
        lines = enumerate(text.split("\n"), first) if numbered else ()
        return "\n".join(f"{number:6}\t{line}" for number, line in lines) if numbered else text

    text, name = CODE[language]
    first = text[: text.index(WHOLE[language])].count("\n") + 1
    assert named_definitions(shown(text, 1), {name}) == {name: shown(WHOLE[language], first)}


def test_names_are_told_in_the_order_in_which_they_are_written() -> None:
    named = names_in("Move `zeta` from lib/z.py and `alpha` from lib/a.py for SO-9 and SO-10, then `mid`.")
    assert named.definitions == ("zeta", "alpha", "mid")
    assert named.paths == ("lib/z.py", "lib/a.py") and named.ids == ("SO-9", "SO-10")
