"""What a passage stands under."""

from __future__ import annotations

from proxy.fit.relevance.passages.outline import DEEPEST, outline
from proxy.fit.relevance.passages.splitting import split


def above(text: str, line: str) -> list[str]:
    """The lines that stay with the one that contains `line`, without blanks around them."""
    passages = split(text)
    place = next(i for i, passage in enumerate(passages) if line in passage.text)
    return sorted(passages[i].text.strip() for i in outline(passages).above(place))


def test_a_line_stands_under_its_headings() -> None:
    text = "# Manual\n\nintro\n\n## Pumps\n\nabout pumps\n\n## Valves\n\nabout valves\n"
    assert above(text, "about valves") == ["# Manual", "## Valves"]
    assert above(text, "about pumps") == ["# Manual", "## Pumps"]
    assert above(text, "# Manual") == []
    assert outline(split(text)).headings == {0: 1, 2: 2, 4: 2}


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
