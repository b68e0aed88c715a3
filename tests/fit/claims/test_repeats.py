"""Which lines of results need not stay, because later results have them or newer ones."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.fit.claims.repeats import Paths, Stretch, Text, arrivals, repeats
from proxy.fit.relevance.results.shown_lines import shown


def lines(name: str, count: int = 40) -> list[str]:
    return [f"{name}: line number {i} of this text" for i in range(count)]


def plain(texts: Sequence[str], path: str = "", certain: bool = True) -> Text:
    return Text(shown("\n".join(texts)), path, f"read {path}" if path else "", certain)


def numbered(texts: Sequence[str], path: str, first: int = 1, certain: bool = True) -> Text:
    text = "\n".join(f"{first + i:5}\t{line}" for i, line in enumerate(texts))
    return Text(shown(text), path, f"read {path} {first} {len(texts)}", certain)


A, B = lines("a"), lines("b")


def test_each_copy_of_a_text_stands_in_the_newest() -> None:
    found = repeats([plain(A), plain(B), plain(A), plain(A)])
    assert found == [(Stretch(0, 40, (3,)),), (), (Stretch(0, 40, (3,)),), ()]


def test_what_a_newer_text_has_only_in_part_stands_in_both() -> None:
    found = repeats([numbered(A, "a"), numbered(A[:30], "a"), numbered(A[20:], "a", 21)])
    assert found == [(Stretch(0, 40, (1, 2)),), (Stretch(20, 30, (2,)),), ()]


def test_a_copy_of_a_copy_that_went_stands_where_that_stands() -> None:
    whole = numbered(A, "a")
    parts = numbered(A[:30], "a")
    assert repeats([parts, parts, whole]) == [(Stretch(0, 30, (2,)),), (Stretch(0, 30, (2,)),), ()]


def test_what_stands_between_runs_of_a_later_read_is_an_older_version() -> None:
    new = [*A[:15], "something: else", *A[18:]]
    old = plain(A, "a")
    other = Text(shown("\n".join(new)), "a", "read a in another way", True)
    assert repeats([old, other]) == [(Stretch(0, 40, (1,), older=True),), ()]


def test_the_end_of_a_log_that_grew_is_no_newer_version_of_its_beginning() -> None:
    log = lines("log", 100)
    old, new = plain(log[:40], "app.log", certain=False), plain(log[25:65], "app.log", certain=False)
    assert repeats([old, new]) == [(Stretch(25, 40, (1,)),), ()]


def test_short_runs_and_lines_that_stand_in_any_text_stay() -> None:
    braces = ["}"] * 60
    assert repeats([plain([*A, *braces]), plain([*B, *braces])]) == [(), ()]
    assert repeats([plain([*A, *B[:5]]), plain(B)]) == [(), ()]


def test_what_must_stay_stays_and_is_still_a_copy() -> None:
    fixed = Text(shown("\n".join(A)), fixed=True)
    assert repeats([fixed, plain(A)]) == [(), ()]
    assert repeats([plain(A), fixed]) == [(Stretch(0, 40, (1,)),), ()]


def test_what_a_text_repeats_when_it_comes_follows_from_those_before() -> None:
    texts = [numbered(A, "a"), plain(B), numbered(A[20:], "a", 21), plain(B), numbered(lines("c"), "c")]
    found = arrivals(texts)
    sizes = {n: next(iter(each.values())) for n, each in enumerate(found) if each}
    assert [[*each] for each in found] == [[], [], [0], [1], []]
    assert sizes[3] == texts[1].shown.size and abs(sizes[2] - texts[2].shown.size) < 40
    assert arrivals(texts[:3]) == found[:3]


def test_a_path_may_be_the_end_of_another_and_many_of_one_name_are_told_apart() -> None:
    paths = Paths()
    assert paths.of("/repo/src/a.py") is paths.of("src/a.py") is not paths.of("b/a.py")
    many = [paths.of(f"{k}/index.js") for k in range(100)]
    assert [paths.of(f"{k}/index.js") for k in range(100)] == many and len({id(each) for each in many}) == 100
