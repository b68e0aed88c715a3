"""The claims of a conversation (DESIGN 5a): read once before the ladder runs, and the same for all steps.

Theory of operation
===================

A claim has a message that makes it (`since`), and holds from there on. A cut decides again: a claim of the newest turn
that names something holds, and one that was made since the cut before, as long as newer claims leave it its share. What
stood at an earlier request follows from what was there then, so a new claim changes no cut that was made, nothing flips
from turn to turn, and no state is needed. Two kinds of messages claim results: a call that is repeated, whose result
refers to the earlier one, and a user's turn that names a definition, a path or an id. What a result says claims
nothing: whoever writes results must not steer cuts. What users typed in a run is claimed by itself.

Claims are bounded: results that are given back by half of the room, one definition by a quarter, all of them by half,
other results by a fifth, all of these by .65, what users typed by a tenth. The newest claims come first. A turn that
names more than `FEW` things (a plan, an issue) claims as much less of each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property
from itertools import accumulate, groupby

from proxy.fit.blocks import have_results
from proxy.fit.claims.again import Reference, Seen, references
from proxy.fit.claims.calls import Result, results_of
from proxy.fit.claims.named import NO_NAMES, names_in, text_of
from proxy.fit.claims.orders import agreements, lines_of_message, turn_reader
from proxy.fit.claims.remembered import LAST_BLOCKS, READS, TURNS, Read, beginnings, remember_read, remember_turns
from proxy.fit.claims.turns import NO_TURNS, SEVERAL, NamedTurn, NamingTurns
from proxy.fit.claims.typed import is_reply, is_typed
from proxy.fit.relevance.history.replay import lasting
from proxy.fit.relevance.history.rooms import NONE_RAISED, Raised, Size
from proxy.fit.relevance.text.reading import read_message, speakers_of
from proxy.model.claims import Back, MessageClaim, Reason, ResultClaim, Standing
from proxy.model.conventions import Conventions
from proxy.model.conversation import Block, Kind, Message
from proxy.model.plan import Draft, Facts
from proxy.model.ports import Meter

GIVEN_BACK = 0.5  # shares of the room (DESIGN 5a)
ONE_DEFINITION, DEFINITIONS = 0.25, 0.5
OTHERS = 0.2
RESULTS = 0.65  # all results together: the newest needs room, too
# Names of a turn; of one that has more, as a plan or an issue, the claims share as much less.
FEW = 8
TYPED = 0.1
ORDERS = 0.2  # of a chat's room: it has no results
ANSWERING = 10  # turns of a chat at most for each of the assistant's; a transcript has more
SPEAKERS = frozenset({Kind.USER, Kind.ASSISTANT})
MISSES = 64  # claims that find no room, after which older ones are not looked at
WHOLE = 100  # tokens of an order's message over which its lines are enough, ...
SHORTER = 0.7  # ... if they have less than this share of them
FRAME = 12  # tokens that lines of a message cost besides their text
ANSWERED = 80  # tokens of the end of an answer that a reply without content of its own answers


class ConversationClaims:
    """The claims of these blocks. Each part is read when it is first asked for."""

    def __init__(self, blocks: Sequence[Block], conventions: Conventions, meter: Meter) -> None:
        self._blocks = blocks
        self._conventions = conventions
        self._meter = meter
        self._standing: dict[tuple[int, int | None], Standing] = {}
        self._made: dict[int, tuple[ResultClaim, ...]] = {}

    def standing(self, room: int, upto: int | None = None) -> Standing:
        """See `Claims`."""
        found = self._standing.get((room, upto))
        if found is None:
            found = self._standing[room, upto] = Standing(
                self._results_within(room, upto), self._messages_within(room, upto)
            )
        return found

    def order_lines(self, index: int) -> tuple[tuple[int, int], ...]:
        """See `Claims`."""
        return next((claim.spans for claim, _ in self._orders if claim.index == index), ())

    def changes(self) -> frozenset[int]:
        """See `Claims`."""
        return self._changes

    def backs(self) -> tuple[Back, ...]:
        """See `Claims`."""
        found = [r for r, _ in self._references if r.stub is not r.target]
        return tuple([Back(r.stub.call.id, r.target.call.id) for r in found])

    def made(self, room: int) -> tuple[ResultClaim, ...]:
        """See `Claims`."""
        found = self._made.get(room)
        if found is None:
            moments = sorted({claim.since for claim in self._newest_first(None)})
            standing = [(moment, self.standing(room, moment).results.values()) for moment in moments]
            found = tuple(claim for moment, claims in standing for claim in claims if claim.since == moment)
            self._made[room] = found
        return found

    def _results_within(self, room: int, upto: int | None) -> dict[str, ResultClaim]:
        found: dict[str, ResultClaim] = {}
        together = RESULTS * room
        of_turn = {turn: DEFINITIONS * room * min(1.0, FEW / count) for turn, count, _ in self._named}
        left = {
            Reason.ASKED_AGAIN: GIVEN_BACK * room,
            Reason.DEFINITION: DEFINITIONS * room,
            Reason.NAMED: OTHERS * room,
        }
        misses = 0
        for claim in self._newest_first(upto):
            most = min(left[claim.reason], together)
            if claim.reason is Reason.DEFINITION:
                most = min(most, ONE_DEFINITION * room)
            most = min(most, of_turn.get(claim.turn, most))
            if claim.until is not None and (upto is None or claim.until <= upto):
                continue
            if claim.tokens > most:
                misses += 1
                if misses > MISSES:
                    break
                continue
            known = found.get(claim.call)
            if known is None or (not known.whole and known.since == claim.since):
                left[claim.reason] -= claim.tokens
                together -= claim.tokens
                if claim.turn in of_turn:
                    of_turn[claim.turn] -= claim.tokens
                found[claim.call] = claim if known is None else _both(known, claim)
        return found

    def _newest_first(self, upto: int | None) -> Iterator[ResultClaim]:
        """The claims of results up to a message, those of repeated calls first. Turns after it are not looked at."""
        if upto is None:
            yield from (*self._again, *(claim for _, _, claims in self._named for claim in claims))
            return
        yield from self._again[bisect_left(self._again, -upto, key=lambda claim: -claim.since) :]
        for _, _, claims in self._named[bisect_left(self._named, -upto, key=lambda turn: -turn[0]) :]:
            yield from (claim for claim in claims if claim.since <= upto)

    def _messages_within(self, room: int, upto: int | None) -> dict[int, MessageClaim]:
        found: dict[int, MessageClaim] = {}
        left = (TYPED if self._all else ORDERS) * room
        for claims in (*self._orders_first(upto, left), *self._typed):
            tokens = sum(claim.tokens for claim in claims)
            if tokens <= left and (upto is None or claims[-1].since <= upto):
                left -= tokens
                found |= {claim.index: claim for claim in claims if claim.index not in found}
        return found

    def _orders_first(self, upto: int | None, room: float) -> list[tuple[MessageClaim, ...]]:
        """The orders up to a message: where they exceed the room, those first that agree with what is asked there, then
        the newest."""
        orders = [order for order in self._orders if upto is None or order[0].since <= upto]
        asked = next((m for m in reversed(self._users) if upto is None or m.index <= upto), None)
        if asked is None or sum(claim.tokens for claim, _ in orders) <= room:
            return [(claim,) for claim, _ in orders]
        worth = agreements([text for _, text in orders], asked.own_text())
        return [(orders[k][0],) for k in sorted(range(len(orders)), key=lambda k: -worth[k])]

    @cached_property
    def _numbers(self) -> list[int]:
        """The key of each beginning of the conversation, by which it is remembered what was read of it."""
        first = self._blocks[0].messages[0].format
        return beginnings(self._blocks, first, self._conventions, self._meter.key)

    @cached_property
    def _reads(self) -> list[Read | None]:
        """What is remembered of each block with results; None where nothing is."""
        each = zip(self._blocks, self._numbers, strict=True)
        return [READS.get(number) if block.has_results else None for block, number in each]

    @cached_property
    def _all(self) -> tuple[Result, ...]:
        """All results in order."""
        found: list[Result] = []
        if have_results(self._blocks):
            for place, (block, read) in enumerate(zip(self._blocks, self._reads, strict=True)):
                if read is not None:
                    found += read.results_in(block, place)
                elif block.has_results:
                    found += results_of(block, place, self._conventions)
        return tuple(found)

    @cached_property
    def _references(self) -> tuple[tuple[Reference, int], ...]:
        """The results that refer to earlier ones or return a text again, each with the tokens of that text."""
        if not self._all:
            return ()
        results, seen, tokens = self._all, dict[int, Seen](), dict[int, int]()
        of_blocks = {place: list(found) for place, found in groupby(range(len(results)), lambda n: results[n].place)}
        for place, numbers in of_blocks.items():
            read = self._reads[place]
            if read is not None:
                seen |= zip(numbers, [said for _, _, said in read.results], strict=True)
                tokens |= zip(numbers, read.tokens, strict=True)
        found = tuple(references(results, self._conventions, seen))
        for r in found:
            if r.number not in tokens:
                tokens[r.number] = self._meter.text(r.target.text)
        for place, numbers in of_blocks.items():
            if self._reads[place] is None:
                of_block = [(results[n], seen[n], tokens.get(n, 0)) for n in numbers]
                remember_read(self._numbers[place], of_block)
        return tuple([(r, tokens[r.number]) for r in found])

    @cached_property
    def _again(self) -> tuple[ResultClaim, ...]:
        """The results that are asked for again, the newest first. A claim ends where the same is asked for again."""
        found, ends = [], dict[str, int]()
        for r, tokens in reversed(self._references):
            call, since = r.target.call, r.stub.index
            until = ends.get(call.same) if call.same else None
            found.append(ResultClaim(call.id, r.target.index, since, Reason.ASKED_AGAIN, tokens, until=until))
            ends[call.same] = since
        return tuple(found)

    @cached_property
    def _users(self) -> tuple[Message, ...]:
        """The messages that users wrote, in order."""
        users = [block.user for block in self._blocks]
        return tuple([m for m in users if m is not None and m.index >= 0])

    @cached_property
    def _named(self) -> tuple[NamedTurn, ...]:
        """What users' turns name, the newest first: the message's index, how many names, and the claims. A turn claims
        results from before it, and those that come until the next turn that names something."""
        results = self._all
        if not results:
            return ()
        last = len(self._blocks) - 1
        at, turns = next(
            ((at + 1, turns) for at in range(last, -1, -1) if (turns := TURNS.get(self._numbers[at])) is not None),
            (0, NO_TURNS),
        )
        number = bisect_left(results, at, key=lambda r: r.place)
        new = len(results) - number
        several = new > SEVERAL or any(block.user is not None for block in self._blocks[at:])
        reader = NamingTurns(results, self._meter, several=several)
        said = next((m for m in self._users if m.index == turns.message), None)
        reader.go_on(turns, said, NO_NAMES if said is None else names_in(text_of(said, self._conventions)))
        for place in range(at, last + 1):
            user = self._blocks[place].user
            names = NO_NAMES if user is None or user.index < 0 else names_in(text_of(user, self._conventions))
            while number < len(results) and results[number].place == place:
                if user is not None and names and results[number].index >= user.index:
                    reader.open(user, names, results[:number])
                    names = NO_NAMES
                reader.add(results[number])
                number += 1
            if user is not None and names:
                reader.open(user, names, results[:number])
            if place > last - LAST_BLOCKS:
                remember_turns(self._numbers[place], reader.now())
        return reader.now().closing()[::-1]

    @cached_property
    def _orders(self) -> tuple[tuple[MessageClaim, str], ...]:
        """The messages that have orders, with the text of these, the newest first. Of a longer message their lines are
        enough."""
        reader, found = turn_reader(self._conventions.orders, self._conventions.reversals), []
        for message in reversed(self._users):
            spans = () if message.answers else reader.read(message).orders
            if spans and text_of(message, self._conventions) and not self._is_transcribed(message):
                lines = lines_of_message(message, spans)
                tokens = self._meter.text(lines) + FRAME if message.tokens > WHOLE else message.tokens
                short = spans if tokens < SHORTER * message.tokens else ()
                found.append((self._order(message, tokens, short), lines))
        return tuple(found)

    def _is_transcribed(self, message: Message) -> bool:
        return bool(self._transcribed) and read_message(message).speaker in self._transcribed

    @staticmethod
    def _order(message: Message, tokens: int, spans: tuple[tuple[int, int], ...]) -> MessageClaim:
        tokens = tokens if spans else message.tokens
        return MessageClaim(message.index, message.index, Reason.ORDER, tokens, spans=spans)

    @cached_property
    def _changes(self) -> frozenset[int]:
        read = turn_reader(self._conventions.orders, self._conventions.reversals).read
        messages = [m for block in self._blocks for m in block.messages if m.kind in SPEAKERS and m.index >= 0]
        return frozenset([m.index for m in messages if read(m).changes])

    @cached_property
    def _transcribed(self) -> set[str]:
        """The speakers of a transcript: names before turns of both sides, or of one side that hardly anybody answers.
        What they said, they said to each other."""
        if self._all:
            return set()
        messages = [m for block in self._blocks for m in block.messages if m.kind in SPEAKERS]
        speakers = [read_message(m).speaker for m in messages]
        known = speakers_of(speakers)
        answers = {who for who, m in zip(speakers, messages, strict=True) if m.kind is Kind.ASSISTANT}
        replies = sum(m.kind is Kind.ASSISTANT for m in messages)
        return known if known & answers or ANSWERING * replies < len(messages) else set()

    @cached_property
    def _typed(self) -> tuple[tuple[MessageClaim, ...], ...]:
        """What users typed in a run with tools besides orders, the newest first. A reply without content of its own has
        what it answers before it, and stays only with that."""
        if not self._all:
            return ()
        orders = {claim.index for claim, _ in self._orders}
        found: list[tuple[MessageClaim, ...]] = []
        for place in range(len(self._blocks) - 1, -1, -1):
            message = self._blocks[place].user
            if message is None or message.index in orders or not is_typed(message, self._conventions):
                continue
            claim = MessageClaim(message.index, message.index, Reason.TYPED, message.tokens)
            if not is_reply(message) or not self._answers(place):
                found.append((claim,))
            elif (answered := self._answered(place, message.index)) is not None:
                found.append((answered, claim))
        return tuple(found)

    def _answers(self, place: int) -> bool:
        """Whether the assistant speaks directly before a block."""
        return place > 0 and any(message.kind is Kind.ASSISTANT for message in self._blocks[place - 1].messages)

    def _answered(self, place: int, since: int) -> MessageClaim | None:
        """The claim of the answer in words directly before a block; None if there is none."""
        if len(self._blocks[place - 1].messages) != 1:
            return None
        message = self._blocks[place - 1].messages[0]
        if message.kind is not Kind.ASSISTANT or message.calls or message.index < 0:
            return None
        return MessageClaim(message.index, since, Reason.TYPED, min(message.tokens, ANSWERED), answered=True)


def places_of(blocks: Sequence[Block]) -> dict[int, int]:
    """The place of the block of each message, by its index in the client's list."""
    return {message.index: place for place, block in enumerate(blocks) for message in block.messages}


def raised_results(draft: Draft, facts: Facts, size: Callable[[int, ResultClaim], Size]) -> Raised:
    """The places of the blocks with claimed results. `size(place, claim)`: the size of a block from that claim on; it
    is asked in the order in which the claims are made."""
    claims = facts.claims
    if claims is None:
        return NONE_RAISED
    room = room_for_claims(draft, facts)
    made = claims.made(room)
    places = places_of(draft.blocks) if made else {}
    raises: dict[int, dict[int, Size]] = {}
    for claim in made:
        if claim.index in places and claim.since in places:
            target = places[claim.index]
            raises.setdefault(places[claim.since], {})[target] = size(target, claim)
    if not raises:
        return NONE_RAISED
    newest = list(accumulate((max([m.index for m in block.messages], default=-1) for block in draft.blocks), max))

    def held(place: int, before: int) -> Set[int]:
        standing = claims.standing(room, newest[place]).results.values()
        since = newest[before] if before >= 0 else -1
        turn = max([claim.turn for claim in standing], default=-1)
        return {places[c.index] for c in standing if c.index in places and (c.since > since or 0 <= c.turn == turn)}

    return Raised(raises, held)


def room_for_claims(draft: Draft, facts: Facts) -> int:
    """The tokens that claims share: the room without what is in every later request, too, results aside. So it is the
    same as when an earlier message was the newest."""
    first = facts.original or draft
    pinned = sum(first.blocks[place].tokens for place in lasting(first.blocks) if not first.blocks[place].has_results)
    return max(0, draft.room - draft.fixed - pinned)


def _both(known: ResultClaim, more: ResultClaim) -> ResultClaim:
    """One claim of two parts of a result; of all of it where one claims that."""
    if more.whole:
        return more
    return ResultClaim(
        known.call,
        known.index,
        known.since,
        known.reason,
        known.tokens + more.tokens,
        known.definitions + more.definitions,
        known.ids + more.ids,
        known.turn,
    )
