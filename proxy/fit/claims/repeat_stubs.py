"""Words the stubs of repeated texts, and resolves them when it is known what is sent: no stub refers to what is not in
the request. It finds no repeats.

A stub says where its text stands. If a later step shortened or dropped that, the stub says how much of it is left, or
where there is no room for that, only what was left out, which takes no more tokens than the stub.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from proxy.fit.relevance.results.messages import parts_of_results
from proxy.model.claims import Holder, Repeat
from proxy.model.conversation import TEXTS, Block, Message
from proxy.model.plan import Draft

SAME = "[A proxy left out {what}: the same text stands in {where} below.]"
OLDER = "[A proxy left out an older version of {what}: a newer one stands in {where} below.]"
SAME_CUT = "[A proxy left out {what}; {kept} of {lines} lines of that are left in {where}.]"
OLDER_CUT = "[A proxy left out an old version of {what}; {kept} of {lines} lines of a new one are left in {where}.]"
GONE, OLDER_GONE = "[A proxy left out {what}.]", "[A proxy left out an old version of {what}.]"
IDENT = re.compile(r"[\w.:-]{1,80}")  # of a call or a tool, that may be quoted
WHOLE_TEXT = "this text"
FEW = 3  # calls that a stub names one by one
FRAGMENT = 8  # characters of a line that is a piece of a stub


def where(calls: Sequence[str], tools: Sequence[str]) -> str:
    """How a stub calls the results of these calls, in their order; of ids that are empty or strange it says the tools.

    `calls`: ids that name one result each; empty where one does not.
    """
    if all(IDENT.fullmatch(call) for call in calls):
        if len(calls) == 1:
            return f"the result of call {calls[0]}"
        if len(calls) <= FEW:
            return f"the results of calls {', '.join(calls[:-1])} and {calls[-1]}"
        return f"the results of {len(calls)} calls from {calls[0]} to {calls[-1]}"
    names = list(dict.fromkeys([tool for tool in tools if IDENT.fullmatch(tool)]))
    of = f" of {names[0]}" if len(names) == 1 else ""
    return f"a later result{of}" if len(calls) == 1 else f"later results{of}"


def what(text: Sequence[str], start: int, end: int, numbers: Sequence[int]) -> str:
    """How a stub calls the lines `start` to `end` of a text; `numbers`: of the lines, negative for those without."""
    if end - start == len(text):
        return WHOLE_TEXT
    numbered = [number for number in numbers[start:end] if number >= 0]
    return f"lines {numbered[0]}-{numbered[-1]}" if numbered else f"{end - start} lines"


def stub(what: str, where: str, *, older: bool) -> str:
    """The stub, as long as all that it stands for is sent."""
    return (OLDER if older else SAME).format(what=what, where=where)


def resolved(draft: Draft) -> Draft:
    """The draft in which no stub refers to what is not sent. The same draft if all are right."""
    if not draft.repeats:
        return draft
    now = {message.index: message for message in draft.messages if message.index >= 0}
    forms = {each: _forms(each, now) for each in draft.repeats}
    wrong = [each for each, form in forms.items() if form[0] != each.stub or now_differs(each, now)]
    if not wrong:
        return draft
    made = draft
    for short in (0, 1):
        made = _with(draft, wrong, {each: form[short] for each, form in forms.items()})
        if made.excess <= 0 or made.prompt <= draft.prompt:
            break
    return made


def now_differs(each: Repeat, now: Mapping[int, Message]) -> bool:
    """Whether a later step changed the message with a stub: then pieces of it may stand there."""
    message = now.get(each.index)
    return message is not None and message.raw != each.raw


def _forms(each: Repeat, now: Mapping[int, Message]) -> tuple[str, str]:
    """What is to stand in place of a stub, as far as there is room for it, and else: the stub where it is right."""
    if all(_is_whole(holder, now) for holder in each.holders):
        return each.stub, each.stub
    left = {line for holder in each.holders for line in _lines(now.get(holder.index), holder.call)}
    if each.older:
        then = [_lines(replace(now[h.index], raw=h.raw), h.call) for h in each.holders if h.index in now]
        lines: Sequence[str] = [line for found in then for line in found if line.strip()]
    else:
        lines = each.lines
    kept = sum([line in left for line in lines])
    if not each.older and kept == len(lines):
        return each.stub, each.stub
    gone = (OLDER_GONE if each.older else GONE).format(what=each.what)
    cut = OLDER_CUT if each.older else SAME_CUT
    return cut.format(what=each.what, where=each.where, kept=kept, lines=len(lines)) if kept else gone, gone


def _is_whole(holder: Holder, now: Mapping[int, Message]) -> bool:
    return holder.index in now and now[holder.index].raw == holder.raw


def _lines(message: Message | None, call: str) -> Sequence[str]:
    """The lines of a result as they are sent."""
    if message is None or call not in message.answers:
        return ()
    return [line for part in parts_of_results(message)[call] for line in part.text.split("\n")]


def _with(draft: Draft, wrong: Iterable[Repeat], forms: Mapping[Repeat, str]) -> Draft:
    """The draft with the given forms in place of stubs, in their messages and in what we quoted of them."""
    by_message: dict[int, list[Repeat]] = {}
    for each in wrong:
        by_message.setdefault(each.index, []).append(each)
    every = [each for found in by_message.values() for each in found]
    blocks = [_block(block, by_message, every, forms, draft) for block in draft.blocks]
    return draft.with_blocks(blocks)


def _block(
    block: Block,
    wrong: Mapping[int, Sequence[Repeat]],
    every: Sequence[Repeat],
    forms: Mapping[Repeat, str],
    draft: Draft,
) -> Block:
    made = [
        _message(message, every if message.index < 0 else wrong.get(message.index, ()), forms)
        for message in block.messages
    ]
    if all(a is b for a, b in zip(made, block.messages, strict=True)):
        return block
    return replace(block, messages=draft.recount(made))


def _message(message: Message, wrong: Sequence[Repeat], forms: Mapping[Repeat, str]) -> Message:
    if not wrong:
        return message
    texts = [part for part in message.parts() if part.kind in TEXTS and part.editable]
    edits = []
    for part in texts:
        text = part.text
        for each in wrong:
            if each.index != message.index or part.call == each.call:
                text = _without_pieces(text, each, forms[each])
        edits.append((part, text))
    return message.edit(edits, message.why)


def _without_pieces(text: str, each: Repeat, form: str) -> str:
    """A text with this form of a stub, and without lines that are pieces of it where it was cut."""
    lines = [form if line == each.stub else line for line in text.split("\n") if not _is_piece(line, each.stub)]
    return "\n".join(lines) or form


def _is_piece(line: str, stub: str) -> bool:
    return FRAGMENT <= len(line) < len(stub) and (stub.startswith(line) or stub.endswith(line))
