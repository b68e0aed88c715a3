"""Whose rule of callers.toml a request is under: the rows compared with its keys, its gateway, its model and its path.

Theory of operation. A row has keyed hashes of keys, never keys. Whatever a request brings as a key counts: each word of
the headers and parameters that may be one, whichever of them its upstream reads. So a caller can neither hide behind a
second key nor behind another spelling of the first. Keys of callers with different names are an error (400): nobody
may pick the better rule. A header counts only from an address that the settings trust.

The rows that match who asks are remembered by what the request brought, and which of them it is by its model and path:
most requests cost two look-ups.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from proxy.apis import by_path
from proxy.config.callers import CallerRow, CallerRules, unusable
from proxy.config.model_names import served
from proxy.config.settings import Settings
from proxy.config.values import Network
from proxy.errors import ClientError, ConfigError
from proxy.http.receiving import Scope, target_of, with_query
from proxy.model.bounded import Bounded
from proxy.model.caller_rule import CallerRule
from proxy.model.plan import Mode
from proxy.request.scanning import BodyScanner
from proxy.request.stages import Received, Record, Scanned
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.routing import globs, is_plain
from proxy.wire.controls import AS, NOTHING_ASKED, UPSTREAM, Controls
from proxy.wire.headers import CREDENTIALS, QUERY, Header
from proxy.wire.paths import KEY_IN_QUERY, one_path

SUBPROTOCOL = b"sec-websocket-protocol"
KEY_NAMES = CREDENTIALS | {QUERY, SUBPROTOCOL}
SUBPROTOCOL_KEY = b"openai-insecure-api-key."  # OpenAI's, before a key
SEPARATORS, PARAMETERS = re.compile(rb"[\s,;]+"), re.compile(rb"[&;]")
MAX_WORDS = 64  # that may be keys in one request: each is hashed
MAX_KNOWN, MAX_BYTES = 4_096, 4_096  # requests by what they brought, and bytes of that
NO_RULE = CallerRule(0, "")  # in place of none, where rules are remembered
HASH = b"key:"  # with which the hash of a key begins


def mark_of(secret: bytes | None) -> str | None:
    """The mark of a secret in hashes of keys, by which those of another secret are told; None without a secret."""
    return None if secret is None else blake2b(secret, person=b"caller mark", digest_size=2).hexdigest()


def hash_of(secret: bytes, key: bytes) -> str:
    """The hash of a key, as a row of callers.toml has it: `key:<mark of the secret>:<keyed hash>`."""
    return f"{HASH.decode()}{mark_of(secret)}:{_digest(_hash_key(secret), key)}"


def _hash_key(secret: bytes) -> bytes:
    return blake2b(secret, person=b"caller key", digest_size=32).digest()


def _digest(hash_key: bytes, key: bytes) -> str:
    return blake2b(key, key=hash_key, digest_size=16).hexdigest()


class Ruled(NamedTuple):
    """A request under the rule of its caller, if it has one. `scanned`: if that was needed. `error`: it may not use its
    model."""

    received: Received
    scanned: Scanned | None = None
    error: ClientError | None = None


class Row(NamedTuple):
    """A row that matches who asks, compiled: which of its requests it is for, and what it says."""

    rule: CallerRule
    models: re.Pattern[str] | None
    paths: re.Pattern[str] | None

    def takes(self, model: str, path: str) -> bool:
        """Whether the row is for a model, by all names that it is served under, and a path. One that can be read in two
        ways may be any."""
        if self.paths is not None and not self.paths.match(path) and is_plain(path):
            return False
        return self.models is None or any(self.models.match(name) for name in (model.strip().lower(), *served(model)))


class Found(NamedTuple):
    """The rows that match who asks, and their numbers."""

    rows: tuple[Row, ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(slots=True)
class Callers:
    """The rules by caller of one process. `hash_key`: of the hashes of keys. `header` names callers, if the gateway
    that sends it is one of `trusted`."""

    rules: CallerRules
    hash_key: bytes = field(repr=False)
    header: bytes
    trusted: tuple[Network, ...]
    usual: Mode = Mode.FIT  # what a caller under a budget gets, whose rule says no mode: its headers change nothing
    rows: tuple[Row, ...] = field(init=False)
    by_model: bool = field(init=False)  # whether a request's model decides anything
    _by_key: dict[str, frozenset[int]] = field(default_factory=dict)
    _by_value: dict[bytes, frozenset[int]] = field(default_factory=dict)
    _anyone: frozenset[int] = field(init=False)
    _names: frozenset[bytes] = field(init=False)  # of the headers that say who asks
    _by_request: bool = field(init=False)  # whether models or paths decide between rows
    _known: Bounded[tuple[bytes, ...], Found] = field(default_factory=lambda: Bounded(MAX_KNOWN))
    _chosen: Bounded[tuple[tuple[bytes, ...], str, str], CallerRule] = field(default_factory=lambda: Bounded(MAX_KNOWN))
    _trust: Bounded[str, bool] = field(default_factory=lambda: Bounded(MAX_KNOWN))
    _plain: dict[int, Controls] = field(default_factory=dict)  # of requests that ask for nothing themselves

    def __post_init__(self) -> None:
        matches = [row.matched for row in self.rules.rows]
        self.rows = tuple(
            Row(self._rule(row, number), globs(match.models), globs(match.paths))
            for number, (row, match) in enumerate(zip(self.rules.rows, matches, strict=True), 1)
        )
        for place, match in enumerate(matches):
            for key in match.keys:
                digest = key.rpartition(":")[2]
                self._by_key[digest] = self._by_key.get(digest, frozenset()) | {place}
            for value in match.headers:
                name = value.encode()
                self._by_value[name] = self._by_value.get(name, frozenset()) | {place}
        self._anyone = frozenset(place for place, m in enumerate(matches) if not m.keys and not m.headers)
        self.by_model = any(row.models is not None or row.rule.models is not None for row in self.rows)
        self._by_request = any(row.models is not None or row.paths is not None for row in self.rows)
        self._names = KEY_NAMES | {self.header} if self._by_value else KEY_NAMES

    def _rule(self, row: CallerRow, number: int) -> CallerRule:
        rule = row.rule(number, self.rules.budgets)
        if rule.budget is None or not rule.budget.enforced or rule.mode is not None:
            return rule
        return replace(rule, mode=self.usual)

    def at_once(self, received: Received, record: Record, scanner: BodyScanner) -> Ruled | None:
        """What `ruled` returns, of a body that is scanned at once, as most; else None. Raises as `ruled`."""
        if not self.by_model:
            return self._ruled(received, None, "")
        named = scanner.named_now(received, record)
        return None if named is None else self._ruled(received, *named)

    async def ruled(self, received: Received, record: Record, scanner: BodyScanner) -> Ruled:
        """A request with what its caller's rule says in place of what its headers ask for. Raises `ClientError` for
        keys of several callers."""
        return self._ruled(received, *await scanner.named(received, record))

    def _ruled(self, received: Received, scanned: Scanned | None, model: str) -> Ruled:
        rule = self._asked_as(received, model) if received.dry_run else None
        rule = rule or self.find(received.headers, received.address, received.path, model)
        if rule is None:
            return Ruled(received, scanned)
        asked = received.controls
        controls = self._plain.get(rule.number) if asked is NOTHING_ASKED else asked.under(rule)
        if controls is None:
            controls = self._plain[rule.number] = asked.under(rule)
        under = replace(
            received,
            mode=controls.mode or received.mode,
            headers=received.headers if rule.upstream is None else with_upstream(received.headers, rule),
            controls=controls,
            terms=controls.terms(received.terms),
        )
        if scanned is not None:  # one that leaves messages out does not know what the rule pins
            scanned = None if scanned.left_out and rule.pin is not None else replace(scanned, controls=controls)
        return Ruled(under, scanned, None if rule.models is None or rule.allows(model) else not_allowed(rule))

    def _asked_as(self, received: Received, model: str) -> CallerRule | None:
        """The rule under which a dry run is asked for, if one is: by its caller's name, by the value of the header that
        names callers, or by the hash of a key."""
        named = {value.strip() for name, value in received.headers if name == AS}
        places = {place for place, row in enumerate(self.rows) if row.rule.name.encode() in named}
        for said in named:
            digest = said.decode("latin-1").rpartition(":")[2] if said.startswith(HASH) else ""
            places |= self._by_value.get(said, frozenset()) | self._by_key.get(digest, frozenset())
        if not places:
            return None
        rows = sorted(places | self._anyone)
        found = Found(tuple(self.rows[place] for place in rows), tuple(self.rows[place].rule.number for place in rows))
        return self._first(found, received.path, model)

    def of(self, scope: Scope) -> CallerRule | None:
        """The rule of a request that is not fitted, whose model nobody reads. Raises as `find`."""
        target, sender = target_of(scope), scope.get("client")
        headers = with_query(target, scope["headers"])
        return self.find(headers, sender[0] if sender else "", target.partition(b"?")[0].decode("latin-1"), "")

    def find(self, headers: Headers, address: str, path: str, model: str) -> CallerRule | None:
        """The rule of a request; None if no row matches it. Raises `ClientError` for keys of several callers."""
        brought: tuple[bytes, ...] = ()
        names = self._names
        for header in headers:
            if header[0] in names and (header[0] in KEY_NAMES or self._is_trusted(address)):
                brought = brought + header if brought else header
        if not self._by_request:
            rows = self._who(brought).rows
            return rows[0].rule if rows else None
        key = brought, path, model
        chosen = self._chosen.get(key)
        return self._choose(key) if chosen is None else None if chosen is NO_RULE else chosen

    def _choose(self, key: tuple[tuple[bytes, ...], str, str]) -> CallerRule | None:
        brought, path, model = key
        found = self._first(self._who(brought), path, model)
        if sum(map(len, brought)) + len(path) + len(model) <= MAX_BYTES:
            self._chosen.put(key, found or NO_RULE)
        return found

    def _first(self, who: Found, path: str, model: str) -> CallerRule | None:
        """The first row that takes a request."""
        normal = one_path(path.encode("utf-8", "replace")).decode("utf-8", "replace").lower()
        return next((row.rule for row in who.rows if row.takes(model, normal)), None)

    def _who(self, brought: tuple[bytes, ...]) -> Found:
        """The rows for who sent these names and values of headers."""
        found = self._known.get(brought)
        if found is None:
            found = self._matching(tuple(zip(brought[::2], brought[1::2], strict=True)))
            if sum(map(len, brought)) <= MAX_BYTES:
                self._known.put(brought, found)
        return found

    def _matching(self, brought: Headers) -> Found:
        """The rows for who sent these headers, whatever it asks for, in their order."""
        keys = [rows for word in _words(brought) if (rows := self._by_key.get(_digest(self.hash_key, word)))]
        if len({frozenset(self.rows[place].rule.name for place in rows) for rows in keys}) > 1:
            raise several_callers()
        values = {value.strip() for name, value in brought if name == self.header}
        if len(values) > 1:
            raise several_callers()
        named = self._by_value.get(values.pop(), frozenset()) if values else frozenset()
        matching = tuple(self.rows[place] for place in sorted(self._anyone.union(named, *keys)))
        return Found(matching, tuple(row.rule.number for row in matching))

    def _is_trusted(self, address: str) -> bool:
        found = self._trust.get(address)
        return self._trust.put(address, _is_in(address, self.trusted)) if found is None else found


def make_callers(rules: CallerRules, settings: Settings, check: bool = True) -> Callers | None:
    """The rules by caller; None if there is no row. `check`: whether every row must be comparable with requests. Raises
    `ConfigError` for one that is not."""
    if check and (problems := unusable(rules, settings, mark_of(settings.secret))):
        raise ConfigError("\n".join(problems))
    if not rules.rows:
        return None
    header = (settings.caller_header or "").encode()
    return Callers(rules, _hash_key(settings.secret or b""), header, settings.trusted_proxies, settings.mode)


def _words(brought: Headers) -> set[bytes]:
    """What may be a key in headers. Raises `ClientError` if there are too many."""
    found = {word for name, value in brought for word in _words_of(name, value) if word}
    if len(found) > MAX_WORDS:
        raise several_callers()
    return found


def _words_of(name: bytes, value: bytes) -> Iterator[bytes]:
    """What may be a key in one header: each word, all of it, and all behind the first word, which may be a scheme."""
    if name == QUERY:
        for given in KEY_IN_QUERY.finditer(value):
            yield PARAMETERS.split(value[given.end() :], maxsplit=1)[0].strip()
    elif name in KEY_NAMES:
        value = value.strip()
        words = SEPARATORS.split(value)
        yield from (value, value.partition(b" ")[2].strip(), *words)
        yield from (word.removeprefix(SUBPROTOCOL_KEY) for word in words if name == SUBPROTOCOL)


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return any((mapped or found) in network for network in networks)


def with_upstream(headers: Headers, rule: CallerRule) -> Headers:
    """A request's headers with the upstream that a rule names, which no client's header changes."""
    if rule.upstream is None:
        return headers
    named: Header = (UPSTREAM, rule.upstream.encode())
    return [*(header for header in headers if header[0] != UPSTREAM), named]


def is_disguised(target: bytes) -> bool:
    """Whether a path that is not fitted is one that is, once an upstream has resolved its percent signs, dots and case:
    so a rule for what is fitted would not hold."""
    return resolved(target).lower() in by_path()


def resolved(target: bytes) -> str:
    """The path of a request as an upstream may read it."""
    path = unquote(target.partition(b"?")[0].decode("latin-1")).replace("\\", "/").partition(";")[0]
    return normpath(one_path(path.encode()).decode())


def several_callers() -> ClientError:
    """A request brings keys of callers with different rules."""
    text = "This request has keys of several callers, for which different rules hold: send one of them."
    return ClientError(400, text, code="several_callers")


def not_allowed(rule: CallerRule) -> ClientError:
    """The rule of a caller says which models it may use, and the request is for none of these."""
    return ClientError(404, f"The caller {rule.name} may not use this model or path.", code="model_not_found")
