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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property
from itertools import accumulate

from proxy.fit.blocks import have_results
from proxy.fit.claims.again import Reference, references, same_path
from proxy.fit.claims.calls import Result, results_of
from proxy.fit.claims.named import Names, named_definitions, names_in, text_of
from proxy.fit.claims.orders import agreements, lines_of_message, turn_reader
from proxy.fit.claims.typed import is_reply, is_typed
from proxy.fit.relevance.history.replay import lasting
from proxy.fit.relevance.history.rooms import NONE_RAISED, Raised, Size
from proxy.fit.relevance.text.reading import read_message, speakers_of
from proxy.model.claims import Back, MessageClaim, Reason, ResultClaim, Standing
from proxy.model.conventions import Conventions
from proxy.model.conversation import Block, Kind, Message
from proxy.model.plan import Draft, Facts
from proxy.model.ports import Meter
from proxy.model.structs import replace

GIVEN_BACK = 0.5  # shares of the room (DESIGN 5a)
ONE_DEFINITION, DEFINITIONS = 0.25, 0.5
OTHERS = 0.2
RESULTS = 0.65  # all results together: the newest needs room, too
# Names of a turn; of one that has more, as a plan or an issue, the claims share as much less (measured).
FEW = 8
TYPED = 0.1
ORDERS = 0.2  # of a chat's room: it has no results
ANSWERING = 10  # turns of a chat at most for each of the assistant's; a transcript has more
SPEAKERS = frozenset({Kind.USER, Kind.ASSISTANT})
MISSES = 64  # claims that find no room, after which older ones are not looked at
RARE = 3  # results at most that contain an id which identifies something
WHOLE = 100  # tokens of an order's message over which its lines are enough, ...
SHORTER = 0.7  # ... if they have less than this share of them
FRAME = 12  # tokens that lines of a message cost besides their text
ANSWERED = 80  # tokens of the end of an answer that a reply without content of its own answers


class _OfTurn:
    """The claims of one turn while they are made. `of_path`: the definitions that are claimed of a path that the turn
    names. `times`: how many results have each id."""

    def __init__(self) -> None:
        self.claims: list[ResultClaim] = []
        self.of_path: set[str] = set()
        self.times: Counter[str] = Counter()
        self._at: dict[tuple[Reason, str], int] = {}

    def put(self, name: str, claim: ResultClaim, of_path: bool = False) -> None:
        """Adds a claim for a name; that of an older result ends."""
        self.end(claim.reason, name, claim.index)
        self._at[claim.reason, name] = len(self.claims)
        self.claims.append(claim)
        self.of_path |= {name} if of_path else set()

    def end(self, reason: Reason, name: str, until: int) -> None:
        """Ends the claim for a name where a newer result has it."""
        known = self._at.pop((reason, name), None)
        if known is not None:
            self.claims[known] = replace(self.claims[known], until=until)


class ConversationClaims:
    """The claims of these blocks. Each part is read when it is first asked for."""

    def __init__(self, blocks: Sequence[Block], conventions: Conventions, meter: Meter) -> None:
        self._blocks = blocks
        self._conventions = conventions
        self._meter = meter
        self._standing: dict[tuple[int, int | None], Standing] = {}
        self._made: dict[int, tuple[ResultClaim, ...]] = {}
        self._in_results: dict[str, bool] = {}
        self._folded: dict[int, str] = {}  # by the identity of results of `_all`

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
        return tuple(Back(r.stub.call.id, r.target.call.id) for r in self._references if r.stub is not r.target)

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
    def _all(self) -> tuple[Result, ...]:
        """All results in order."""
        if not have_results(self._blocks):
            return ()
        return tuple(r for place, block in enumerate(self._blocks) for r in results_of(block, place, self._conventions))

    @cached_property
    def _references(self) -> tuple[Reference, ...]:
        return tuple(references(self._all, self._conventions))

    @cached_property
    def _again(self) -> tuple[ResultClaim, ...]:
        """The results that are asked for again, the newest first."""
        return tuple(
            ResultClaim(
                r.target.call.id, r.target.index, r.stub.index, Reason.ASKED_AGAIN, self._meter.text(r.target.text)
            )
            for r in reversed(self._references)
        )

    @cached_property
    def _users(self) -> tuple[Message, ...]:
        """The messages that users wrote, in order."""
        users = [block.user for block in self._blocks]
        return tuple([m for m in users if m is not None and m.index >= 0])

    @cached_property
    def _named(self) -> tuple[tuple[int, int, list[ResultClaim]], ...]:
        """What users' turns name, the newest first: the message's index, how many names, and the claims. A turn claims
        results from before it, and those that come until the next turn that names something."""
        found: list[tuple[int, int, list[ResultClaim]]] = []
        until = None
        for message in reversed(self._users if self._all else ()):
            names = names_in(text_of(message, self._conventions))
            if names:
                results = [r for r in self._all if until is None or r.index < until]
                found.append((message.index, len(names), self._claims_by(message, names, results)))
                until = message.index
        return tuple(found)

    def _claims_by(self, message: Message, names: Names, results: Sequence[Result]) -> list[ResultClaim]:
        """The claims of one turn: each definition, path and rare id in the newest result that has it, definitions of a
        path that the turn names first. A result that comes after the turn is claimed when it comes, and the claim of an
        older one ends there: so what stood at an earlier request follows from what was there then."""
        made = _OfTurn()
        before = [r for r in results if r.index < message.index]
        self._claim_before(message, names, before, made)
        for result in results[len(before) :]:
            self._claim_after(message, names, result, made)
        return sorted(made.claims, key=lambda claim: (claim.reason is Reason.NAMED, -claim.since))

    def _claim_before(self, message: Message, names: Names, results: Sequence[Result], made: _OfTurn) -> None:
        """Claims of the results before a turn."""
        read = sorted(results, key=lambda r: (self._is_named(r, names), r.index), reverse=True)
        wanted = dict.fromkeys(filter(self._is_in_results, names.definitions))
        defined = set[str]()
        for result in read if wanted else ():
            texts = named_definitions(result.text, wanted, self._without_case(result)) if wanted else {}
            for name, text in texts.items():
                claim = self._claim(result, message, Reason.DEFINITION, self._meter.text(text), (name,))
                made.put(name, claim, self._is_named(result, names))
            wanted = dict.fromkeys(name for name in wanted if name not in texts)
            defined |= {result.call.path} if texts else set()
        for path in names.paths:
            newest = next((r for r in read if _reads(r, path)), None)
            if newest is not None and newest.call.path not in defined:
                made.put(path, self._claim(newest, message, Reason.NAMED, self._meter.text(newest.text)))
        for ident in filter(self._is_in_results, names.ids):
            having = [r for r in results if ident in r.text]
            made.times[ident] = len(having)
            if 0 < len(having) <= RARE:
                made.put(ident, self._claim_id(having[-1], message, ident))

    def _claim_after(self, message: Message, names: Names, result: Result, made: _OfTurn) -> None:
        """Claims of one result that came after the turn."""
        is_named = self._is_named(result, names)
        wanted = [
            name for name in names.definitions if self._is_in_results(name) and (is_named or name not in made.of_path)
        ]
        texts = named_definitions(result.text, wanted, self._without_case(result)) if wanted else {}
        for name, text in texts.items():
            made.put(name, self._claim(result, message, Reason.DEFINITION, self._meter.text(text), (name,)), is_named)
        for path in names.paths if not texts else ():
            if _reads(result, path):
                made.put(path, self._claim(result, message, Reason.NAMED, self._meter.text(result.text)))
        for ident in filter(self._is_in_results, names.ids):
            if ident in result.text:
                made.times[ident] += 1
                made.end(Reason.NAMED, ident, result.index)
                if made.times[ident] <= RARE:
                    made.put(ident, self._claim_id(result, message, ident))

    def _claim_id(self, result: Result, message: Message, ident: str) -> ResultClaim:
        lines = "\n".join(line for line in result.text.split("\n") if ident in line)
        return self._claim(result, message, Reason.NAMED, self._meter.text(lines), ids=(ident,))

    def _claim(
        self,
        result: Result,
        message: Message,
        reason: Reason,
        tokens: int,
        definitions: tuple[str, ...] = (),
        ids: tuple[str, ...] = (),
    ) -> ResultClaim:
        since = max(message.index, result.index)
        return ResultClaim(result.call.id, result.index, since, reason, tokens, definitions, ids, message.index)

    def _is_in_results(self, name: str) -> bool:
        """Whether any result has this name, in its own case or in lower case. Each name is searched for once."""
        found = self._in_results.get(name)
        if found is None:
            found = self._in_results[name] = name in self._texts[0] or name in self._texts[1]
        return found

    @cached_property
    def _texts(self) -> tuple[str, str]:
        """The texts of all results, and the same without case."""
        return "\0".join(r.text for r in self._all), "\0".join(map(self._without_case, self._all))

    def _without_case(self, result: Result) -> str:
        """A result's text without case, made once: each turn that names something searches all results."""
        found = self._folded.get(id(result))
        if found is None:
            found = self._folded[id(result)] = result.text.casefold()
        return found

    @staticmethod
    def _is_named(result: Result, names: Names) -> bool:
        return bool(result.call.path) and any(same_path(result.call.path, path) for path in names.paths)

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


def _reads(result: Result, path: str) -> bool:
    return bool(result.call.reads and result.call.path) and same_path(result.call.path, path)


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
