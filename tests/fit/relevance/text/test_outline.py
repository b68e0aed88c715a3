"""What a passage stands under."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.passages.splitting import split
from proxy.fit.relevance.text.outline import DEEPEST, Outline, outline

GO = """func (s *Server) Start(ctx context.Context) error {
\tif s.closed {
\t\treturn nil
\t}

\treturn s.run()
}

type Server struct {
\tclosed bool
}"""
PYTHON = """def outer(first,
          second):
    value = 1

    return value

class Harbour:
    async def moor(self):
        pass
value = 1"""
TYPESCRIPT = """export class Harbour {
  private async load(id: string): Promise<void> {
    await this.read(id);
  }
}
export const berth = (a: number) => {
  return a;
};"""
JAVA = """public class Harbour {
    @Override
    public List<String> names(int a) throws IOException {
        if (a) {
            return b;
        } else {
            c();
        }
    }
}"""
RUST = """pub async fn moor(a: u8) -> Result<(), Full> {
    berth?;
    Ok(())
}
impl Harbour for Port {
    fn size(&self) -> u8 {
        1
    }
}"""
C = """static int moor(struct ship *a, int b)
{
    return 1;
}
int main(void) {
    for (;;) {
        moor();
    }
}
int declared(void);"""


def outline_of(text: str, *, titles: bool = False) -> Outline:
    """The outline of a text's passages."""
    passages = split(text)
    return outline([passage.text for passage in passages], [passage.starts for passage in passages], titles=titles)


def above(text: str, line: str, *, titles: bool = False) -> list[str]:
    """The lines that stay with the one that contains `line`, without blanks around them."""
    passages = split(text)
    place = next(i for i, passage in enumerate(passages) if line in passage.text)
    return sorted(passages[i].text.strip() for i in outline_of(text, titles=titles).above(place))


def by_line(lines: list[str]) -> Outline:
    """The outline of single lines."""
    return outline(lines, [1] * len(lines), titles=True)


def bodies(code: str) -> list[tuple[int, int, str]]:
    """(first line, the one after the last, name) of each definition with a body."""
    found = by_line(code.split("\n"))
    return [(place, found.until[place], name) for place, name in found.defined.items()]


def headings(text: str) -> list[tuple[int, int]]:
    """(heading, the line after its section) of each."""
    found = by_line(text.split("\n"))
    return [(place, found.until[place]) for place in found.headings]


# Headings.


def test_a_line_stands_under_its_headings() -> None:
    text = "# Manual\n\nintro\n\n## Pumps\n\nabout pumps\n\n## Valves\n\nabout valves\n"
    assert above(text, "about valves") == ["# Manual", "## Valves"]
    assert above(text, "about pumps") == ["# Manual", "## Pumps"]
    assert above(text, "# Manual") == []
    assert outline_of(text).headings == {0: 1, 2: 2, 4: 2}


def test_a_comment_in_code_is_no_heading() -> None:
    assert above("x = 1\n# note\ny = 2\n", "y = 2") == []


def test_a_fenced_file_keeps_its_name_and_both_fences() -> None:
    text = "Files:\n\npumps.py\n```python\n# a comment\n\ndef start():\n    return 1\n```\n\nend\n"
    assert above(text, "return 1") == ["```", "```python", "def start():", "pumps.py"]
    assert above(text, "# a comment") == ["```", "```python", "pumps.py"]
    assert above(text, "```python") == ["```", "pumps.py"]
    assert above(text, "end") == []


def test_a_fence_after_a_blank_line_has_no_name_and_an_inner_fence_is_text() -> None:
    text = "# A\n\nsome words\n\n````\n```\ninner\n````\nafter\n"
    assert above(text, "inner") == ["# A", "````", "````"]
    assert above(text, "after") == ["# A"]


def test_a_fence_that_opens_the_text_or_never_closes() -> None:
    assert above("```\na\nb\n", "b") == ["```"]


def test_a_line_in_a_tag_keeps_both_tags() -> None:
    text = '<doc id="1">\n# Title\n\nwords\n</doc>\n<p>\nother\n</b>\n'
    assert above(text, "words") == ["# Title", "</doc>", '<doc id="1">']
    assert above(text, "other") == []
    assert above(text, "</doc>") == ["</doc>", '<doc id="1">']


def test_a_line_of_code_stands_under_its_definitions() -> None:
    text = "class Pump:\n    def start(self):\n        go()\n    def stop(self):\n        halt()\nrun()\n"
    assert above(text, "halt()") == ["class Pump:", "def stop(self):"]
    assert above(text, "run()") == []


def test_only_the_nearest_lines_stay() -> None:
    text = "\n\n".join(f"{'#' * level} H{level}" for level in range(1, 7)) + "\n\ndeep\n"
    assert above(text, "deep") == sorted(f"{'#' * level} H{level}" for level in range(7 - DEEPEST, 7))


def test_a_piece_of_a_long_line_stands_where_its_line_stands() -> None:
    assert above("# A\n\n" + "word " * 1000 + "last", "last") == ["# A"]


def test_a_tag_that_closes_around_an_open_heading_closes_it() -> None:
    text = "<a>\n<b>\ninner\n</a>\nouter\n</b>\n"
    assert above(text, "outer") == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (GO, [(0, 7, "Start"), (8, 11, "Server")]),
        (PYTHON, [(0, 5, "outer"), (6, 9, "Harbour"), (7, 9, "moor")]),
        (TYPESCRIPT, [(0, 5, "Harbour"), (1, 4, "load"), (5, 8, "berth")]),
        (JAVA, [(0, 10, "Harbour"), (2, 9, "names")]),
        (RUST, [(0, 4, "moor"), (4, 9, "Harbour"), (5, 8, "size")]),
        (C, [(0, 4, "moor"), (4, 9, "main")]),
    ],
)
def test_a_definition_has_its_body_in_every_language(code: str, expected: list[tuple[int, int, str]]) -> None:
    assert bodies(code) == expected
    assert [line for _, _, line in bodies(code + "\n\n\nlast")] == [line for _, _, line in expected]


def test_line_numbers_of_a_tool_are_no_indent() -> None:
    assert bodies("\n".join(f"{number:6}→{line}" for number, line in enumerate(GO.split("\n"), 1))) == bodies(GO)


def test_a_signature_of_several_lines_has_its_body() -> None:
    text = "def first(\n    a,\n) -> int:\n    return a\n\nother = 1\n"
    assert above(text, "return a") == ["def first("] and above(text, "other = 1") == []


def test_a_bracket_that_closes_a_body_stands_outside_of_it() -> None:
    text = "class Harbour {\n  void moor() {\n    go();\n  }\n  int size;\n}\n"
    assert above(text, "go();") == ["class Harbour {", "void moor() {"]
    assert above(text, "  }") == above(text, "int size;") == ["class Harbour {"]


def test_a_section_ends_where_a_heading_of_its_level_follows() -> None:
    text = "# Guide\ntext\n\n## Install\ndo it\n\n### Linux\napt\n\n## Use\nrun it"
    assert headings(text) == [(0, 11), (3, 9), (6, 9), (9, 11)]


def test_headings_are_underlined_numbered_or_in_capitals_too() -> None:
    assert headings("Guide\n=====\ntext\n\nUse\n---\nrun") == [(0, 7), (4, 7)]
    assert headings("NAME\n  ls\n\nSEE ALSO\n  cp") == [(0, 3), (3, 5)]
    assert headings("1 Scope\na\n\n1.1 Terms\nb\n\n2 Rules\nc") == [(0, 6), (3, 6), (6, 8)]
    text = "Guide\n=====\n\ntext\n\nPumps\n-----\n\nabout pumps\n"
    assert outline_of(text, titles=True).headings == {0: 1, 3: 2} and outline_of(text).headings == {}


def test_steps_of_a_section_stand_under_its_heading() -> None:
    text = "## Install\n\n1. Get it\n\nfrom here\n\n2. Run it\n\nas root\n\n## Use\n\nit\n"
    assert above(text, "as root", titles=True) == ["## Install", "2. Run it"]


def test_a_line_in_a_paragraph_is_no_heading() -> None:
    assert headings("it costs\n7 Euro\nand more\nNOT LESS\n\na long line of text\n---") == []
