"""What looks like retrieved context in instructions."""

from __future__ import annotations

from proxy.fit.relevance.passages.context import context_places
from proxy.fit.relevance.passages.texts import read

FACTS = "\n".join(f"Fact {i} is that number {i} is a number." for i in range(100))
RULES = "# Rules\n\nBe short.\nBe kind.\n"


def gone(text: str, least: float = 1000, *names: str) -> str:
    """The text that may go."""
    found = read(text, 0.2)
    return "".join(found.passages[place].text for place in sorted(context_places(found, least, names)))


def test_a_long_section_behind_instructions_is_context() -> None:
    assert gone(f"You help.\n\n# Context\n\n{FACTS}\n\n{RULES}").strip() == FACTS
    assert gone(f"You help.\n\n<documents>\n{FACTS}\n</documents>\nBe short.").strip() == FACTS
    assert gone(f"You help.\n\n```\n{FACTS}\n```\nBe short.").strip() == FACTS


def test_short_sections_are_instructions() -> None:
    assert gone(f"You help.\n\n{RULES}\n# Context\n\nFact 1.\n") == ""
    assert gone("You help. " * 5) == ""


def test_a_section_that_is_named_is_context_whatever_its_length() -> None:
    text = f"You help.\n\n# Context\n\nFact 1.\n\n<notes>\nFact 2.\n</notes>\n\n{RULES}"
    assert gone(text, 1000, "context") == "Fact 1.\n\n<notes>\nFact 2.\n</notes>\n\n"
    assert gone(text, 1000, "Notes") == "Fact 2.\n"


def test_a_title_over_all_is_no_context_and_the_inner_section_is() -> None:
    assert gone(f"# Guide\n\nYou help.\n\n{RULES}\n## Context\n\n{FACTS}\n").strip() == FACTS
    assert gone(f"# Guide\n\n{FACTS}\n") == ""


def test_sections_of_a_long_section_are_context_together() -> None:
    text = f"You help.\n\n# Context\n\n## One\n\n{FACTS}\n\n## Two\n\n{FACTS}\n\n## Three\n\n{FACTS}\n"
    assert gone(text, len(FACTS) + 500).count("Fact 99") == 3
    assert gone(f"You help.\n\n# All\n\n## One\n\n{FACTS}\n\n{FACTS}\n\n## Two\n\nfew\n").startswith("Fact 0")


def test_a_section_ends_where_its_tag_ends() -> None:
    assert gone(f"You help.\n<doc>\n# Title\n\n{FACTS}\n</doc>\nBe short.").strip().endswith(FACTS[-20:])


def test_without_sections_it_is_what_is_between_the_first_and_the_last_paragraph() -> None:
    assert gone(f"You help.\n\n{FACTS}\n\nBe short.").strip() == FACTS


def chunks(opening: str, closing: str, count: int = 12) -> str:
    return "\n\n".join(f"{opening.format(i)}\nFact {i}: {'so it is, ' * 20}\n{closing}" for i in range(count))


def test_W28_a_run_of_like_sections_is_one_retrieved_context() -> None:
    for text in (chunks('<doc id="{}">', "</doc>"), chunks("## notes/{}.md", "")):
        found = gone(f"Answer from the notes.\n\n{text}")
        assert all(f"Fact {i}:" in found for i in range(12)) and "Answer" not in found
    assert gone(chunks("## notes/{}.md", "")) == ""  # no text before it
    assert gone(f"You help.\n\n{chunks('## Rule {}', '', 3)}", 500) == ""


def test_W28_a_long_section_comes_before_a_run_of_short_ones_and_the_longest_run_before_others() -> None:
    short = chunks("## Rule {}", "", 5)
    assert gone(f"You help.\n\n{short}\n\n## Context\n\n{FACTS}\n").strip() == FACTS
    text = f"You help.\n\n{chunks('<rule n={}>', '</rule>', 5)}\n\n{chunks('<doc id={}>', '</doc>', 12)}\n"
    found = gone(text)
    assert "<doc id=11>" in found and "<rule" not in found
