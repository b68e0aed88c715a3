"""What stands below a heading, and the bodies of definitions."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.text.sections import Section, sections

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


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (GO, [Section(0, 7, "Start"), Section(8, 11, "Server")]),
        (PYTHON, [Section(0, 5, "outer"), Section(6, 9, "Harbour"), Section(7, 9, "moor")]),
        (TYPESCRIPT, [Section(0, 5, "Harbour"), Section(1, 4, "load"), Section(5, 8, "berth")]),
        (JAVA, [Section(0, 10, "Harbour"), Section(2, 9, "names")]),
        (RUST, [Section(0, 4, "moor"), Section(4, 9, "Harbour"), Section(5, 8, "size")]),
        (C, [Section(0, 4, "moor"), Section(4, 9, "main")]),
    ],
)
def test_a_definition_has_its_body_in_every_language(code: str, expected: list[Section]) -> None:
    assert [section for section in sections(code.split("\n"))] == expected


def test_line_numbers_of_a_tool_are_no_indent() -> None:
    numbered = [f"{number:6}→{line}" for number, line in enumerate(GO.split("\n"), 1)]
    assert sections(numbered) == sections(GO.split("\n"))


def test_a_section_ends_where_a_heading_of_its_level_follows() -> None:
    lines = "# Guide\ntext\n## Install\ndo it\n### Linux\napt\n## Use\nrun it".split("\n")
    assert sections(lines) == [Section(0, 8), Section(2, 6), Section(4, 6), Section(6, 8)]


def test_headings_are_underlined_numbered_or_in_capitals_too() -> None:
    assert sections(["Guide", "=====", "text", "", "Use", "---", "run"]) == [Section(0, 7), Section(4, 7)]
    assert sections(["NAME", "  ls", "", "SEE ALSO", "  cp"]) == [Section(0, 3), Section(3, 5)]
    assert sections(["1 Scope", "a", "", "1.1 Terms", "b", "", "2 Rules", "c"])[:2] == [Section(0, 6), Section(3, 6)]


def test_a_line_in_a_paragraph_is_no_heading() -> None:
    assert sections(["it costs", "7 Euro", "and more", "NOT LESS", "", "a long line of text", "---"]) == []
