"""The lines of a log, of code or of text that bear on a question."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.lines import render, shorten_lines, survey, values_of
from proxy.fit.relevance.results.read_on import ReadOn
from proxy.fit.relevance.results.text_lines import LONG, lines_of
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.splitting import tokens_by_line
from proxy.model.ports import Meter
from tests.laws.meters import CharMeter
from tests.makers import words

METER = CharMeter()


def shortened(text: str, limit: int, question: str, arguments: str = "", meter: Meter = METER) -> str:
    found = shorten_lines(text, limit, ResultQuery(question, arguments), meter, lambda made: meter.text(made) <= limit)
    assert found is not None and meter.text(found) <= limit
    return found


def log(count: int) -> list[str]:
    return [f"2023-05-08 10:00:{i % 60:02} INFO worker {i} is done with its part of the work" for i in range(count)]


def worths(lines: list[str], question: str) -> list[float]:
    return values_of(
        survey(lines_of("\n".join(lines)), tokens_by_line(lines), range(len(lines))), ResultQuery(question)
    )


def test_the_lines_that_were_asked_for_stay_with_their_neighbours() -> None:
    lines = log(500)
    lines[250] = "the budget of the committee was exceeded"
    found = shortened("\n".join(lines), 200, "What is it with the budget?").split("\n")
    assert lines[250] in found and lines[249] in found and lines[251] in found


def test_it_says_how_many_lines_went_and_keeps_both_ends() -> None:
    lines = log(500)
    found = shortened("\n".join(lines), 300, "What is it about?")
    assert found.startswith(lines[0]) and found.endswith(lines[-1])
    missing = sum(int(n) for n in re.findall(r"… (\d+)(?: of 500)? lines? …", found))
    kept = sum(line in lines for line in found.split("\n"))
    assert missing + kept == 500


def test_kept_lines_are_whole_and_in_order() -> None:
    lines = [f"{i} {words(i % 9, 'x')}" for i in range(300)]
    kept = [line for line in shortened("\n".join(lines), 150, "x5").split("\n") if line in lines]
    assert kept == sorted(kept, key=lines.index) and len(kept) > 9


def test_trouble_stands_out_most_of_all_where_it_is_asked_for() -> None:
    lines = log(500)
    lines[123] = "2023-05-08 10:00:03 ERROR java.io.IOException: disk is full"
    lines[321] = "2023-05-08 10:00:09 WARN the disk has little room"
    asked, other = worths(lines, "Why did it fail?"), worths(lines, "Say when it was done.")
    assert max(range(500), key=lambda i: asked[i]) == 123 and max(range(500), key=lambda i: other[i]) == 123
    assert asked[123] > other[123] and asked[321] > sorted(asked)[-5]
    assert lines[123] in shortened("\n".join(lines), 200, "Why did it fail?")


def test_of_a_system_that_writes_no_levels_the_few_lines_with_words_of_trouble_stay() -> None:
    lines = [
        f"10:00:{i % 60:02}|pump_{i % 40}_{words(1, f'p{i % 40}_')}|flow_{i % 90}y is {i} of {i * 7}"
        for i in range(500)
    ]
    lines[90] = "10:01:30|valve_sync|closing the valve failed type=3"
    lines[91] = "10:01:31|valve_sync|closing the valve failed type=5"
    lines[300] = "10:05:00|tank_store|write fail code=4"
    for question in ("Is there a problem visible in this log?", "Did anything go wrong?"):
        found = shortened("\n".join(lines), 300, question).split("\n")
        assert all(lines[place] in found for place in (90, 91, 300))


def test_the_second_line_of_one_kind_of_seldom_trouble_stays_too_where_trouble_is_asked_for() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    lines = [
        f"{i} pump is open and "
        + " ".join(f"{letters[(i * 7 + k) % 26]}{letters[i // 26]}{letters[k]}_part" for k in range(3))
        for i in range(500)
    ]  # three new names on every line
    lines[300] = "300 saveDetail of one record fail, type = 40003"
    lines[304] = "304 saveDetail of one record fail, type = 40005"
    found = shortened("\n".join(lines), 900, "Did anything go wrong?").split("\n")
    assert lines[300] in found and lines[304] in found


def test_warnings_count_as_much_as_errors_where_nothing_worse_is_told() -> None:
    lines = [f"10:00:{i % 60:02} INFO worker {i} checked unknown part {i}" for i in range(300)]
    lines[150] = "10:02:30 WARNING the lock is held for long"
    alone = worths(lines, "Did anything go wrong?")
    assert alone[150] == max(alone)
    lines[200] = "10:03:20 ERROR the lock is lost"
    beside = worths(lines, "Did anything go wrong?")
    assert beside[200] == max(beside) and beside[150] < alone[150] - 0.5


def test_a_line_that_shouts_of_trouble_stands_out_among_many_with_words_of_trouble() -> None:
    lines = [
        f"sshd[{i}]: Failed password for invalid user {words(1, f'u{i}_')} from 10.0.0.{i % 250}" for i in range(300)
    ]
    lines[100] = "sshd[100]: lookup of host 10.1.1.1 failed - POSSIBLE NAME SPOOFING!"
    assert lines[100] in shortened("\n".join(lines), 300, "Is there a problem visible in this log?")


def test_a_shape_of_line_that_is_seldom_met_is_worth_more() -> None:
    lines = [*log(99), "something else entirely"]
    worth = worths(lines, "")
    assert max(range(100), key=lambda i: worth[i]) == 99


def test_ids_that_are_new_on_every_line_do_not_hide_the_one_line_that_differs() -> None:
    lines = [
        f"10:00:{i % 60:02} req-{i * 7919:08x} blk_{i}a size {i} served to host-{i}.example.net" for i in range(400)
    ]
    lines[200] = "10:00:20 the pool was drained by hand"
    assert lines[200] in shortened("\n".join(lines), 150, "Is something unusual?")


def test_a_repeated_kind_of_line_does_not_take_all_the_room() -> None:
    lines = [f"10:00:{i % 60:02} password of user {i} was checked" for i in range(300)]
    lines[100:200:9] = [f"10:00:{i:02} quota of {i} kinds {words(i, 'k')}" for i in range(1, 13)]
    found = shortened("\n".join(lines), 200, "What of the password?")
    assert found.count("password") > 5 and found.count("quota") > 2


def test_the_outline_of_code_stays() -> None:
    lines = [line for i in range(80) for line in (f"def task_{i}(self):", f"    value = {i}", "    return value", "")]
    found = shortened("\n".join(lines), 400, "")
    assert found.count("def task_") > 3 * found.count("value = ")


def test_a_definition_further_in_is_worth_less_and_line_numbers_are_no_indent() -> None:
    worth = worths(["   12→def outer():", "            def inner():", "## Heading", "x = 1", "return 1", ""], "")
    outer, inner, heading, plain, routine, empty = worth
    assert outer > inner > heading > plain > routine > empty


def test_each_identifier_need_stand_there_once_only() -> None:
    lines = [f"call(first_name, second_name) # {words(3, 'a')}" for _ in range(50)]
    lines += [f"call(other_{i}x{i}, more_{i}y{i}) # {words(3, 'a')}" for i in range(10)]
    found = shortened("\n".join(lines), 260, "")
    assert sum(f"other_{i}x{i}" in found for i in range(10)) >= 8


def test_what_the_question_quotes_is_found_to_the_letter() -> None:
    lines = log(300)
    lines[200] = lines[200].replace("worker 200", "worker 55475-a")
    assert lines[200] in shortened("\n".join(lines), 150, "What of 55475-a?").split("\n")


def test_a_long_line_is_read_in_chunks() -> None:
    text = words(2_000, "a") + " budget " + words(2_000, "b")
    assert len(text) > LONG
    found = shortened(text, 400, "What about the budget?")
    assert "budget" in found and " … " in found and "lines" not in found


def test_the_chunks_of_a_text_are_the_text() -> None:
    text = "short\n" + "y" * 3_000 + "\n\n" + words(900) + "\n"
    assert render(lines_of(text), range(len(lines_of(text)))) == text


def test_a_line_no_longer_than_the_note_would_be_stands_there_itself() -> None:
    lines = lines_of("one\n}\ntwo\nthree is a long line, longer than a note\nfour\nfive\nsix")
    assert render(lines, [0, 2, 4]) == "one\n}\ntwo\n… 1 line …\nfour\n… 2 of 7 lines …"
    assert render(lines, [6]) == "… 6 of 7 lines …\nsix"
    assert render(lines_of("a\nb"), [1]) == "a\nb"


def test_the_note_names_the_lines_as_the_tool_numbers_them_and_how_to_ask_for_the_most() -> None:
    lines = lines_of("\n".join(f"the text of line {i}" for i in range(120, 140)))
    call = ReadOn(120, offset="offset", limit="limit")
    assert render(lines, [0, 2, 9], call).split("\n") == [
        "the text of line 120",
        "… line 121 …",
        "the text of line 122",
        "… lines 123-128 …",
        "the text of line 129",
        "… lines 130-139 (offset 130, limit 10) …",
    ]
    assert "… 6 lines …" in render(lines, [0, 2, 9], ReadOn(120, True))
    assert render(lines, [19], ReadOn(1)).startswith("… lines 1-19 …\n")
    assert render(lines, [19], ReadOn(1, offset="start_line")).startswith("… lines 1-19 (start_line 1) …\n")


def test_W8_the_first_note_says_who_left_lines_out_and_how_to_read_them() -> None:
    lines = lines_of("\n".join(f"the text of line {i}" for i in range(1, 341)))
    call = ReadOn(1, offset="offset", limit="limit", says_who=True)
    said = "[… lines 25-330 left out by a proxy; read with offset 25, limit 306 …]"
    assert said in render(lines, [*range(24), *range(330, 340)], call).split("\n")
    two = render(lines, [0, 9, 339], call).split("\n")
    assert two[1] == "[… lines 2-9 left out by a proxy …]" and two[3] == "… lines 11-339 (offset 11, limit 329) …"


def test_W8_output_that_is_not_read_by_lines_says_how_many_of_how_many_are_missing() -> None:
    lines = lines_of("\n".join(f"src/file{i}.py:{i}: found" for i in range(340)))
    found = render(lines, [0, 99, 101, 339]).split("\n")
    assert found[1] == "… 98 lines …" and found[5] == "… 237 of 340 lines …"
    said = render(lines, [0, 339], ReadOn(says_who=True)).split("\n")
    assert said[1] == "[… 338 of 340 lines left out by a proxy …]"


def test_a_definition_that_is_asked_for_comes_with_its_body_and_the_signatures_of_others() -> None:
    kinds = {
        "def {}(ship):\n{}\n": "    berth = crane_{}(ship)",
        "func {}(ship Ship) int {{\n{}\n}}\n": "\tberth := crane_{}(ship)",
        "int {}(struct ship *s)\n{{\n{}\n}}\n": "    berth = crane_{}(s);",
        "  public int {}(Ship ship) {{\n{}\n  }}\n": "    berth = crane_{}(ship);",
        "pub fn {}(ship: Ship) -> u8 {{\n{}\n}}\n": "    let berth = crane_{}(ship);",
        "export function {}(ship: Ship): number {{\n{}\n}}\n": "  const berth = crane_{}(ship);",
    }
    for head, line in kinds.items():
        bodies = ["\n".join(line.format(f"{i}_{k}") for k in range(6)) for i in range(60)]
        text = "\n".join(head.format(f"moor_ship_{i}", body) for i, body in enumerate(bodies))
        found = shortened(text, 500, "What does moor_ship_37 do?")
        assert all(row in found.split("\n") for row in bodies[37].split("\n"))
        assert sum(f"moor_ship_{i}" in found for i in range(60)) > 12


def test_a_heading_that_matches_brings_the_text_below_it() -> None:
    told = [f"## Part {words(2, f'p{i}')}\n\n" + "\n".join(words(9, f"t{i}x{k}y") for k in range(5)) for i in range(60)]
    told[37] = told[37].replace(words(2, "p37"), "Mooring by night")
    found = shortened("\n\n".join(told), 300, "How is mooring done at night?")
    assert all(line in found for line in told[37].split("\n"))


def test_where_not_one_line_fits_there_is_none() -> None:
    assert shorten_lines(words(400), 2, ResultQuery(""), METER, lambda made: METER.text(made) <= 2) is None


@given(
    st.text(alphabet="ab_ \nE1", max_size=400), st.integers(1, 60), st.sampled_from(["", "a b", "Why did it fail? E1"])
)
def test_it_is_always_within_the_limit_and_the_same_every_time(text: str, limit: int, question: str) -> None:
    def fits(made: str) -> bool:
        return METER.text(made) <= limit

    found = shorten_lines(text, limit, ResultQuery(question), METER, fits)
    assert found is None or fits(found)
    assert found == shorten_lines(text, limit, ResultQuery(question), METER, fits)


class WordMeter(CharMeter):
    """A token for each word and each line break."""

    def text(self, text: str) -> int:
        return len(re.findall(r"\S+|\n", text))


def test_lines_that_join_what_is_chosen_leave_no_room_empty() -> None:
    told = "the boat of the keeper", "all hands are on deck"
    lines = [f"{told[i % 2] if 60 < i < 260 else 'nothing is here now'} and more words" for i in range(400)]
    found = shortened("\n".join(lines), 1600, "Where is the boat of the keeper?", meter=WordMeter())
    assert WordMeter().text(found) > 1600 - 2 * WordMeter().text(f"{lines[0]}\n")
