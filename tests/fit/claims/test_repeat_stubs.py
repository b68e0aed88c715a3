"""What the stubs of repeated texts say, and that they say nothing of what is not sent."""

from __future__ import annotations

import pytest

from proxy.fit.claims.repeat_stubs import resolved, stub, what, where
from proxy.model.claims import Holder, Repeat
from proxy.model.conversation import Block, Message
from proxy.model.plan import Draft
from proxy.model.structs import replace
from tests.makers import contents, draft, tool_round, user

TEXT = "\n".join(f"line {i} of it" for i in range(10))
STUB = stub("this text", "the result of call r1", older=False)
OLDER = stub("this text", "the result of call r1", older=True)


def with_repeat(found: Draft, said: str, older: bool) -> Draft:
    first, second = (block.messages[1] for block in found.blocks[1:3])
    each = Repeat(
        index=first.index,
        call="r0",
        raw=first.raw,
        stub=said,
        what="this text",
        where="the result of call r1",
        lines=tuple(TEXT.split("\n")),
        holders=(Holder(second.index, "r1", second.raw),),
        older=older,
    )
    return replace(found, repeats=(each,))


def stubbed(window: int = 4_000, older: bool = False) -> Draft:
    said = OLDER if older else STUB
    found = draft([user("q"), *tool_round("r0", said), *tool_round("r1", TEXT)], window)
    return with_repeat(found, said, older)


def written(found: Draft, place: int, text: str) -> Draft:
    """The draft with another text in the result of a block."""
    block: Block = found.blocks[place]
    call, result = block.messages
    (part,) = result.parts()
    short: Message = result.edit([(part, text)], "cut")
    blocks = list(found.blocks)
    blocks[place] = replace(block, messages=found.recount((call, short)))
    return found.with_blocks(blocks)


@pytest.mark.parametrize("older", [False, True])
def test_a_stub_whose_text_is_sent_whole_is_left_alone(older: bool) -> None:
    found = stubbed(older=older)
    assert resolved(found) is found
    plain = replace(found, repeats=())
    assert resolved(plain) is plain


def test_a_stub_says_how_many_lines_are_left() -> None:
    found = resolved(written(stubbed(), 2, "\n".join(TEXT.split("\n")[:4])))
    assert (
        contents(found)[2] == "[A proxy left out this text; 4 of 10 lines of that are left in the result of call r1.]"
    )
    found = resolved(written(stubbed(older=True), 2, "\n".join(TEXT.split("\n")[:4])))
    said = (
        "[A proxy left out an old version of this text; 4 of 10 lines of a new one are left in the result of call r1.]"
    )
    assert contents(found)[2] == said


@pytest.mark.parametrize(("older", "said"), [(False, "this text"), (True, "an old version of this text")])
def test_a_stub_of_what_is_gone_names_no_place(older: bool, said: str) -> None:
    found = stubbed(older=older)
    gone = found.with_blocks(found.blocks[:2])
    assert contents(resolved(gone))[2] == f"[A proxy left out {said}.]"
    nothing = written(found, 2, "[… 10 lines left out …]")
    assert contents(resolved(nothing))[2] == f"[A proxy left out {said}.]"


def test_a_copy_that_was_written_otherwise_but_has_all_lines_is_whole() -> None:
    found = written(stubbed(), 2, TEXT + "\nand more")
    assert resolved(found) is found


def test_where_there_is_no_room_for_figures_the_stub_only_says_what_went() -> None:
    cut = written(stubbed(), 2, "line 1 of it")
    tight = next(
        one for n in range(1, 4_000) if (one := replace(cut, window=replace(cut.window, tokens=n))).excess <= 0
    )
    assert contents(resolved(tight))[2] == "[A proxy left out this text.]"
    assert resolved(tight).excess <= 0


def test_pieces_of_a_stub_that_a_later_step_cut_are_removed() -> None:
    cut = written(stubbed(), 1, f"head\n{STUB[:30]}\n[… 9 tokens left out …]\n{STUB[-20:]}\ntail")
    assert contents(resolved(cut))[2] == "head\n[… 9 tokens left out …]\ntail"


def test_what_we_quoted_of_a_stub_is_resolved_too() -> None:
    found = written(stubbed(), 2, "nothing of it")
    quote = found.write(f"[Excerpts]\ntool: \n{STUB}", "quoted")
    quoted = found.with_blocks([*found.blocks, Block(found.recount((quote,)))])
    assert contents(resolved(quoted))[-1] == "[Excerpts]\ntool: \n[A proxy left out this text.]"


@pytest.mark.parametrize(
    ("calls", "tools", "said"),
    [
        (["a"], ["Read"], "the result of call a"),
        (["a", "b", "c"], ["Read"] * 3, "the results of calls a, b and c"),
        (["a", "b", "c", "d"], ["Read"] * 4, "the results of 4 calls from a to d"),
        ([""], ["Read"], "a later result of Read"),
        (["a", ""], ["Read", "bash"], "later results"),
        (["a]\nobey"], ["x y"], "a later result"),
    ],
)
def test_calls_are_named_by_ids_or_tools_that_are_safe_to_quote(calls: list[str], tools: list[str], said: str) -> None:
    assert where(calls, tools) == said


def test_lines_are_named_by_their_numbers_or_counted() -> None:
    text = ["a", "b", "c"]
    assert what(text, 0, 3, [4, 5, 6]) == "this text"
    assert what(text, 1, 3, [4, 5, 6]) == "lines 5-6" and what(text, 1, 3, []) == "2 lines"
