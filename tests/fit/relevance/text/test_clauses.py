"""Where the clauses of a user's text end, and which of them ask."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.text.clauses import clauses_in, is_question


def clauses(text: str) -> list[str]:
    return [text[start:end] for start, end in clauses_in(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Good morning! Who has the key? Thanks.", ["Good morning!", "Who has the key?", "Thanks."]),
        ("Question: who has it?\nAnswer:", ["Question", "who has it?", "Answer"]),
        ('{"role": "user", "text": "Who has it?", "n": 30}', ["role", "user", "text", "Who has it?", "n", "30}"]),
        ("<q lang='en'>\n  <text>Who has it?</text>\n</q>", ["Who has it?"]),
        ('She asks: "Who has it?" What do I reply', ["She asks", '"Who has it?"', "What do I reply"]),
        ("Oye, ¿quién la tiene? Gracias", ["Oye,", "¿quién la tiene?", "Gracias"]),
        ("你好。钥匙在谁那里？谢谢！", ["你好。", "钥匙在谁那里？", "谢谢！"]),
        ("Version 3.5 of a.b at 09:42", ["Version 3.5 of a.b at 09:42"]),
        ("Was war am 10. April 2023? Und am 3. Mai.", ["Was war am 10. April 2023?", "Und am 3. Mai."]),
        ("I counted 10. Nobody knows.", ["I counted 10.", "Nobody knows."]),
        ("Let me see 😄 Who has it?", ["Let me see", "Who has it?"]),
        (" \n--- \n", []),
    ],
)
def test_a_clause_ends_at_punctuation_line_breaks_labels_quotes_of_json_and_tags(text: str, found: list[str]) -> None:
    assert clauses(text) == found


@pytest.mark.parametrize(
    "clause", ["Who?", "Who？", "من؟", "“Who?”", "Who? **", "Ποιος;", "Ποιος\u037e", "谁来吗", "誰ですか。"]
)
def test_a_question_ends_with_a_question_mark_of_any_script_or_a_particle_that_asks(clause: str) -> None:
    assert is_question(clause)


@pytest.mark.parametrize("clause", ["Tell me who.", "first;", "Who? I say", "谁来。"])
def test_any_other_clause_is_a_statement(clause: str) -> None:
    assert not is_question(clause)
