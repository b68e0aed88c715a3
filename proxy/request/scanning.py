"""Received -> Scanned: takes off a body's content-encoding and scans its bytes; it neither counts nor plans."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.errors import ClientError
from proxy.model import oversized_json
from proxy.model.api import Api
from proxy.model.lenient_json import UNREADABLE
from proxy.model.scan import KnownPrefix, Scan
from proxy.request.bugs import report_bug
from proxy.request.decompression import unpacked
from proxy.request.prefix_cache import PrefixCache
from proxy.request.stages import Received, Record, Scanned
from proxy.request.work import HEAVY_BYTES, Pool
from proxy.wire.coding import coding_of
from proxy.wire.controls import MESSAGE_KEY
from proxy.wire.headers import value_of
from proxy.wire.scan import NotUnderstood, without_lone_surrogates

CROWDED = 1 << 18  # bytes of a body whose JSON values are counted before it is parsed: each may take 300 bytes then
# Values and messages that one request may have, and bytes of its body for each one more: each takes 100 bytes, 2 KB.
VALUES, VALUE_BYTES = 1 << 16, 256
MESSAGES, MESSAGE_BYTES = 1 << 15, 1024
OBJECTS = 250_000  # objects of a crowded conversation that is cut
LISTED, LISTED_BYTES = 1 << 18, 32  # the same for values of a body whose messages are only listed: each takes 60 bytes
TOO_MANY_VALUES = "there are more values in it than we plan with"
TOO_MANY_MESSAGES = "there are more messages in it than we plan with"


@dataclass(slots=True)
class BodyScanner:
    """Scans bodies, short ones inline and long ones in a thread. `max_body` limits the unpacked size, in bytes."""

    max_body: int
    prefixes: PrefixCache
    pool: Pool = field(repr=False)

    def scan_now(self, received: Received) -> Scanned | None:
        """The scan of a short body; None for a body that `scan` must do. Raises `NotUnderstood`."""
        if value_of(received.headers, b"content-encoding") is not None:
            return None
        api, body = received.api, received.body
        known = self.prefixes.find(api, body)
        new = len(body) - (known.end if known is not None else 0)
        if new > HEAVY_BYTES or (new > CROWDED and oversized_json.signs(body) > _max_values(body)):
            return None
        plain, found = _scan(api, body, known)
        if found.seen.count > MESSAGES and _has_too_many(found, body):
            return None
        return Scanned(plain, found, received.controls)

    async def scan(self, received: Received) -> Scanned:
        """The scan of any body. Raises `NotUnderstood`, and `ClientError` 503 if there is no memory to unpack it."""
        unpacked_body = await self._unpacked(received)
        heavy = len(unpacked_body) > CROWDED
        controls = received.controls
        pinned = bool(controls.pins) or (controls.rule is not None and controls.rule.pin is not None)
        plain, found, left_out = await self.pool.run(heavy, _checked_scan, received.api, unpacked_body, pinned)
        return Scanned(plain, found, received.controls, left_out=left_out)

    async def named(self, received: Received, record: Record) -> tuple[Scanned | None, str]:
        """The scan of a request, and the model that it names; empty if it is not understood. Raises `ClientError` as
        `scan`."""
        found = self.named_now(received, record)
        if found is not None:
            return found
        try:
            scanned = await self.scan(received)
            return scanned, scanned.model
        except NotUnderstood:
            return None, ""
        except ClientError:
            raise
        except Exception as error:
            report_bug(record, error)
            return None, ""

    def named_now(self, received: Received, record: Record) -> tuple[Scanned | None, str] | None:
        """The same of a short body; None for a body that `scan` must do. Raises nothing."""
        try:
            scanned = self.scan_now(received)
            return None if scanned is None else (scanned, scanned.scan.model)
        except NotUnderstood:
            return None, ""
        except Exception as error:
            report_bug(record, error)
            return None, ""

    async def whole(self, received: Received, scanned: Scanned | None) -> Scanned:
        """The scan of a body, of which `scanned` is known, without the proxy's own key in its messages. Raises as
        `scan`."""
        if scanned is None:
            scanned = await self.scan(received)
        return await self.without_key(received.api, scanned) if scanned.scan.seen.keyed else scanned

    async def without_key(self, api: Api, scanned: Scanned) -> Scanned:
        """The same body without the proxy's own key in its messages, whose pins join those of the headers. Raises
        `NotUnderstood`."""
        plain, controls = scanned.plain, scanned.controls
        written, pins = await self.pool.run(len(plain) > HEAVY_BYTES, api.request.without_extension, plain)
        return replace(scanned, plain=written, controls=replace(controls, pins=controls.pins | pins))

    async def unscanned_without_key(self, received: Received) -> bytes:
        """The body of a request that was not understood, without the proxy's own key in its messages. The same object
        if there is no such key. Raises `NotUnderstood` if its messages cannot be parsed."""
        plain = await self._unpacked(received)
        return await self.pool.run(len(plain) > HEAVY_BYTES, _without_key, received.api, received.body, plain)

    async def _unpacked(self, received: Received) -> bytes:
        return await unpacked(received.body, coding_of(received.headers), self.max_body, self.pool.run, received.room)


def _checked_scan(api: Api, body: bytes, pinned: bool) -> tuple[bytes, Scan, int]:
    """`_scan` of a body that is not too large to be parsed, else of its first and newest messages, and how many it is
    without. Raises `NotUnderstood`."""
    excess = _too_large(api, body)
    if excess is None:
        plain, found = _scan(api, body)
        if not _has_too_many(found, body):
            return plain, found, 0
        excess = TOO_MANY_MESSAGES
    if pinned or oversized_json.find(body, MESSAGE_KEY.encode()) >= 0:
        raise NotUnderstood(excess)  # what is pinned may stand in the middle
    ends = _ends(api, body)
    if ends is None or _too_large(api, ends[0]) is not None:
        raise NotUnderstood(excess)
    plain, found = _scan(api, ends[0])
    if _has_too_many(found, plain):
        raise NotUnderstood(excess)
    return plain, replace(found, most=None, marks=None), ends[1]  # its bytes and digests are not those of the request


def _ends(api: Api, body: bytes) -> tuple[bytes, int] | None:
    """The body without the middle of its conversation, and how many messages that has; None if it cannot be had."""
    if oversized_json.values(body, most := LISTED + len(body) // LISTED_BYTES) > most:
        return None
    try:
        if body.count(b"{") > OBJECTS:  # to decode more takes seconds of the processor
            return None
        return api.without_middle(body, (VALUES // 2, MESSAGES // 2))
    except (*UNREADABLE, KeyError):
        return None


def _too_large(api: Api, body: bytes) -> str | None:
    """What a body has too much of to be parsed; None if it may be parsed. Lists of numbers are not parsed together."""
    if len(body) > CROWDED and oversized_json.values(body, most := _max_values(body)) > most:
        if not api.numeric or sum(oversized_json.count(body, sign) for sign in (b"[", b"{", b'"')) > most:
            return TOO_MANY_VALUES
    if len(body) > oversized_json.OUTSIZE and oversized_json.strange(body):
        return "there is a very long name, role or key in it"
    return None


def _max_values(body: bytes) -> int:
    return VALUES + len(body) // VALUE_BYTES


def _scan(api: Api, body: bytes, known: KnownPrefix | None = None) -> tuple[bytes, Scan]:
    """The body, without unpaired surrogates, and its scan. Raises `NotUnderstood`."""
    try:
        long = known is None and len(body) > oversized_json.LONGEST
        plain, found = body, _outline_scan(api, body) if long else api.request.scan(body, known)
    except NotUnderstood:
        mendable = without_lone_surrogates(body)
        if mendable is None:
            raise
        plain, found = mendable, api.request.scan(mendable)
    return plain, found


def _has_too_many(found: Scan, body: bytes) -> bool:
    return found.seen.count > MESSAGES + len(body) // MESSAGE_BYTES


def _outline_scan(api: Api, body: bytes) -> Scan:
    """The scan of a body that is too long to be decoded at once. No window is large enough for it, so it is always
    planned: the scan has no bound on its tokens and no digest. Raises `NotUnderstood`."""
    if (outline := oversized_json.outline(body)) is None:
        return api.request.scan(body)
    return replace(api.request.scan(outline.text), most=None, marks=None, text=body)


def _without_key(api: Api, body: bytes, plain: bytes) -> bytes:
    if oversized_json.find(plain, MESSAGE_KEY.encode()) < 0 or _too_large(api, plain):
        return body
    plain = without_lone_surrogates(plain) or plain
    written, _ = api.request.without_extension(plain)
    return body if written is plain else written
