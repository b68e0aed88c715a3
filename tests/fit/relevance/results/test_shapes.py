"""What repeats in the lines of a text."""

from __future__ import annotations

from proxy.fit.relevance.results.shapes import shapes_of, without_fresh
from proxy.fit.relevance.text.splitting import distinct_tokens, tokens_by_line


def test_lines_that_differ_in_numbers_times_and_ids_alone_have_one_shape() -> None:
    tokens = tokens_by_line(
        ["10:00:01 sshd[71]: session a1f3 closed", "10:00:02 sshd[7]: session 77b2 closed", "- 7 -"]
    )
    first, second, third = shapes_of(tokens, distinct_tokens(tokens))
    assert first == second == ("sshd", "session", "closed") and third == ()


def test_identifiers_that_are_new_on_every_line_are_no_names() -> None:
    fresh = {f"req-{i}f" for i in range(40)}
    assert without_fresh({*fresh, "src/main.py", "load_rules", "sha_256"}, 50) == {
        "src/main.py",
        "load_rules",
        "sha_256",
    }
    assert without_fresh(fresh, 1_000) == fresh
