"""How the tables of words are made, without the model and the lists."""

from __future__ import annotations

from proxy.fit.relevance.text.word_table import WordTable
from tests.bench.word_tables import chosen, table


def test_the_words_of_a_table_are_as_they_are_matched_in_order_and_say_something() -> None:
    listed = ["der", "hund", "Äpfel", "apfel", "e-mail", "x", "2023", "hünde", "katze", "maus"]
    assert chosen(listed, "de", 4) == {"hund": "hund", "apfel": "Äpfel", "hunde": "hünde", "katze": "katze"}
    assert list(chosen(["的", "我们", "医院", "计算机", "学生"], "zh", 9)) == ["医院", "学生"]


def test_the_file_of_a_table_is_read_back() -> None:
    made = WordTable(table(["hund", "katze"], [bytes([1, 2]), bytes([255, 0])]), compact=True)
    assert (made.vector("hund"), made.vector("katze"), made.vector("maus")) == (0x0201, 0x00FF, None)
    assert len(made) == 2 and len(made.similarity) == 17
