"""What users' turns name of the results of a run: claims of definitions, paths and rare ids. It weighs no claims.

A turn claims results from before it, and those that come until the next turn that names something. What is claimed at
the end of a block follows from the blocks up to it, so a longer run goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
from msgspec.structs import replace

from proxy.fit.claims.again import last_name, same_path
from proxy.fit.claims.calls import Result
from proxy.fit.claims.named import Names, named_definitions
from proxy.model.claims import Reason, ResultClaim
from proxy.model.conversation import Message
from proxy.model.ports import Meter

RARE = 3  # results at most that contain an id which identifies something
SEVERAL = 8  # results that are read, from which on it pays to search all texts at once for each name
NamedTurn = tuple[int, int, Sequence[ResultClaim]]  # the message's index, how many names, and the claims


@dataclass(slots=True)
class OfTurn:
    """The claims of one turn while they are made. `of_path`: the definitions that are claimed of a path that the turn
    names. `times`: how many results have each id. `changes`: how often it was changed.
    `at`: the place in `claims` of the one that stands for a name."""

    claims: list[ResultClaim] = field(default_factory=list)
    of_path: set[str] = field(default_factory=set)
    times: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    at: dict[tuple[Reason, str], int] = field(default_factory=dict)

    def put(self, name: str, claim: ResultClaim, of_path: bool = False) -> None:
        """Adds a claim for a name; that of an older result ends."""
        self.end(claim.reason, name, claim.index)
        self.at[claim.reason, name] = len(self.claims)
        self.claims.append(claim)
        self.of_path |= {name} if of_path else set()

    def end(self, reason: Reason, name: str, until: int) -> None:
        """Ends the claim for a name where a newer result has it."""
        self.changes += 1
        known = self.at.pop((reason, name), None)
        if known is not None:
            self.claims[known] = replace(self.claims[known], until=until)

    def copy(self) -> OfTurn:
        """A copy that can be changed."""
        return OfTurn([*self.claims], {*self.of_path}, Counter(self.times), self.changes, {**self.at})


class Turns(msgspec.Struct, frozen=True, gc=False):
    """The turns that name something up to a place, oldest first, and the newest of them, which `made` claims so far: of
    what comes later it may claim more."""

    closed: tuple[NamedTurn, ...] = ()
    message: int = -1
    names: int = 0
    made: OfTurn | None = None

    def closing(self) -> tuple[NamedTurn, ...]:
        """All of the turns with their claims, oldest first."""
        if self.made is None:
            return self.closed
        claims = sorted(self.made.claims, key=lambda claim: (claim.reason is Reason.NAMED, -claim.since))
        return (*self.closed, (self.message, self.names, claims))

    @property
    def size(self) -> int:
        """How many claims it has."""
        return sum([1 + len(claims) for _, _, claims in self.closed]) + (len(self.made.claims) if self.made else 0)


NO_TURNS = Turns()


class _Wanted:
    """What a turn names, ready to be compared with the paths of results."""

    def __init__(self, message: Message, names: Names) -> None:
        self.message, self.names = message, names
        self._lasts = frozenset(map(last_name, names.paths))

    def of_path(self, result: Result) -> bool:
        """Whether it names the path of a result."""
        path = result.call.path
        return bool(path) and last_name(path) in self._lasts and any(same_path(path, one) for one in self.names.paths)


class NamingTurns:
    """Reads what turns name in these results, all of a run. `several`: so many are read that their texts are first
    searched together."""

    def __init__(self, results: Sequence[Result], meter: Meter, *, several: bool) -> None:
        self._results = results
        self._meter = meter
        self._several = several
        self._in_results: dict[str, bool] = {}
        self._folded: dict[int, str] = {}  # by the identity of results
        self._closed: tuple[NamedTurn, ...] = ()
        self._wanted: _Wanted | None = None
        self._made = OfTurn()
        self._now, self._changes = NO_TURNS, 0

    def go_on(self, turns: Turns, message: Message | None, names: Names) -> None:
        """Goes on from what was claimed up to a place; `message` and `names`: of the newest turn there, if there is
        one."""
        self._closed, self._now = turns.closed, turns
        if message is not None and turns.made is not None:
            self._wanted, self._made = _Wanted(message, names), turns.made.copy()
            self._changes = self._made.changes

    def open(self, message: Message, names: Names, before: Sequence[Result]) -> None:
        """A turn that names something: the one before it claims no more. `before`: all results before the turn."""
        self._closed = self.now().closing()
        self._wanted, self._made, self._changes = _Wanted(message, names), OfTurn(), -1
        self._claim_before(self._wanted, before, self._made)

    def add(self, result: Result) -> None:
        """The next result."""
        if self._wanted is not None:
            self._claim_after(self._wanted, result, self._made)

    def now(self) -> Turns:
        """What is claimed so far."""
        if self._wanted is not None and self._made.changes != self._changes:
            self._changes = self._made.changes
            self._now = Turns(self._closed, self._wanted.message.index, len(self._wanted.names), self._made.copy())
        return self._now

    def _claim_before(self, turn: _Wanted, results: Sequence[Result], made: OfTurn) -> None:
        """Claims of the results before a turn: each definition, path and rare id in the newest result that has it,
        definitions of a path that the turn names first. A result that comes after the turn is claimed when it comes,
        and the claim of an older one ends there: so what stood at an earlier request follows from what was there
        then."""
        of_path = {id(r): turn.of_path(r) for r in results}
        read = sorted(results, key=lambda r: (of_path[id(r)], r.index), reverse=True)
        wanted = dict.fromkeys(filter(self._is_in_results, turn.names.definitions))
        defined = set[str]()
        for result in read if wanted else ():
            texts = named_definitions(result.text, wanted, self._without_case(result)) if wanted else {}
            for name, text in texts.items():
                claim = self._claim(result, turn, Reason.DEFINITION, self._meter.text(text), (name,))
                made.put(name, claim, of_path[id(result)])
            wanted = dict.fromkeys(name for name in wanted if name not in texts)
            defined |= {result.call.path} if texts else set()
        for path in turn.names.paths:
            newest = next((r for r in read if _reads(r, path)), None)
            if newest is not None and newest.call.path not in defined:
                made.put(path, self._claim(newest, turn, Reason.NAMED, self._meter.text(newest.text)))
        for ident in filter(self._is_in_results, turn.names.ids):
            having = [r for r in results if ident in r.text]
            made.times[ident] = len(having)
            if 0 < len(having) <= RARE:
                made.put(ident, self._claim_id(having[-1], turn, ident))

    def _claim_after(self, turn: _Wanted, result: Result, made: OfTurn) -> None:
        """Claims of one result that came after the turn."""
        names, is_named = turn.names, turn.of_path(result)
        wanted = [
            name for name in names.definitions if self._is_in_results(name) and (is_named or name not in made.of_path)
        ]
        texts = named_definitions(result.text, wanted, self._without_case(result)) if wanted else {}
        for name, text in texts.items():
            made.put(name, self._claim(result, turn, Reason.DEFINITION, self._meter.text(text), (name,)), is_named)
        for path in names.paths if not texts else ():
            if _reads(result, path):
                made.put(path, self._claim(result, turn, Reason.NAMED, self._meter.text(result.text)))
        for ident in filter(self._is_in_results, names.ids):
            if ident in result.text:
                made.times[ident] += 1
                made.end(Reason.NAMED, ident, result.index)
                if made.times[ident] <= RARE:
                    made.put(ident, self._claim_id(result, turn, ident))

    def _claim_id(self, result: Result, turn: _Wanted, ident: str) -> ResultClaim:
        lines = "\n".join(line for line in result.text.split("\n") if ident in line)
        return self._claim(result, turn, Reason.NAMED, self._meter.text(lines), ids=(ident,))

    def _claim(
        self,
        result: Result,
        turn: _Wanted,
        reason: Reason,
        tokens: int,
        definitions: tuple[str, ...] = (),
        ids: tuple[str, ...] = (),
    ) -> ResultClaim:
        index = turn.message.index
        since = max(index, result.index)
        return ResultClaim(result.call.id, result.index, since, reason, tokens, definitions, ids, index)

    def _is_in_results(self, name: str) -> bool:
        """Whether any result may have this name, in its own case or in lower case. Each name is searched for once, and
        not at all where few results are read."""
        if not self._several:
            return True
        found = self._in_results.get(name)
        if found is None:
            found = self._in_results[name] = name in self._texts[0] or name in self._texts[1]
        return found

    @cached_property
    def _texts(self) -> tuple[str, str]:
        """The texts of all results, and the same without case."""
        return "\0".join(r.text for r in self._results), "\0".join(map(self._without_case, self._results))

    def _without_case(self, result: Result) -> str:
        """A result's text without case, made once: each turn that names something searches all results."""
        found = self._folded.get(id(result))
        if found is None:
            found = self._folded[id(result)] = result.text.casefold()
        return found


def _reads(result: Result, path: str) -> bool:
    return bool(result.call.reads and result.call.path) and same_path(result.call.path, path)
