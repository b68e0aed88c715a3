"""The files that lines are from."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.passages.file_names import file_names
from proxy.fit.relevance.passages.splitting import split
from proxy.fit.relevance.text.outline import outline


def named(text: str) -> list[tuple[str, str]]:
    """The line, and its file, of each passage that has one."""
    passages = split(text)
    texts = [passage.text for passage in passages]
    found = file_names(texts, outline(texts, [passage.starts for passage in passages]))
    return [(line.strip(), name) for line, name in zip(texts, found.of, strict=True) if name]


@pytest.mark.parametrize(
    "text",
    [
        "src/a.py\n```\nBODY\n```\nother\n",
        "Files:\n\n**`src/a.py`**:\n```python\nBODY\n```\nother\n",
        "File: src/a.py\n~~~\nBODY\n~~~\n",
        "# Files\n\n## src/a.py\n\nBODY\n\n# Other\n\nother\n",
        "### `src/a.py`\n\n```python\nBODY\n```\n\n### Notes\n\nother\n",
        '<file path="src/a.py">\nBODY\n</file>\nother\n',
        "<doc name=src/a.py>\nBODY\n</doc>\n",
        '<document index="1">\n<source>src/a.py</source>\n<text>\nBODY\n</text>\n</document>\nother\n',
    ],
)
def test_what_stands_under_the_name_of_a_file_is_from_it(text: str) -> None:
    found = named(text)
    assert ("BODY", "src/a.py") in found and {name for _, name in found} == {"src/a.py"}
    assert "other" not in dict(found)


@pytest.mark.parametrize(
    "text",
    [
        "This is a.py, as it was:\n```\nBODY\n```\n",
        "Output:\n```\nBODY\n```\n",
        "```\nBODY\n```\n",
        "# Changes of a.py in 2.0\n\nBODY\n",
        "<p>\nBODY\n</p>\n",
        "<p>\n",
        "class Harbour:\n    BODY\n",
        f"{'x' * 200}.py\n```\nBODY\n```\n",
    ],
)
def test_what_stands_under_no_file_name_is_from_none(text: str) -> None:
    assert named(text) == []


def test_the_inner_file_counts() -> None:
    found = dict(named("# docs/all.md\n\nouter\n\na.py\n```\ninner\n```\n"))
    assert found["outer"] == "docs/all.md" and found["inner"] == "a.py"
