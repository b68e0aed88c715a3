"""GET /learned and POST /forget: what was learned of a model, from what evidence and until when.

`refusal_of` decides who may use them: records of one tenant are private to it, and only operators may delete records.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import msgspec

from proxy.apis import error_body
from proxy.cache.cache import Cache
from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.http.memory_budget import Budget
from proxy.http.receiving import Receive, Scope, read_body
from proxy.http.relay import ClientDisconnected, Send, send_error
from proxy.model.limits import Correction, Shape
from proxy.tokens.families import Families
from proxy.upstreams.models_listing import Headers
from proxy.wire.headers import value_of

ASKED = b"x-plimsoll-admin"  # browsers send no custom header across origins without permission
MOST_BYTES = 65_536  # of the body of POST /forget
UNIT = "scale"  # the kind of limit whose value is a ratio, not a number of tokens


class _Named(msgspec.Struct):
    model: str


_NAMED = msgspec.json.Decoder(_Named)


def learned_of(cache: Cache, families: Families, model: str, tenant: bytes | None = None) -> dict[str, Any]:
    """The valid records of a model, of all tenants or of one: figures, times in UTC, and the tenant as a short keyed
    hash. These are the records of this process: workers share records only through Redis."""
    start = families.find(model).start
    return {
        "model": model,
        "limits": [
            {
                "caller": one.tenant,
                "kind": one.kind,
                "value": one.proof.value if one.kind == UNIT else int(one.proof.value),
                "rule": one.proof.rule,
                "counted": one.proof.counted,
                "quality": one.proof.quality,
                "reply": one.proof.reply or None,
                "named": one.proof.named or None,
                "taught_at": _time(one.proof.at),
                "until": _time(one.expires_at),
                "probe_due": None if one.probe_at is None else _time(one.probe_at),
            }
            for one in cache.proofs(model, tenant)
        ],
        "counts": [
            {
                "caller": one.tenant,
                "shape": one.shape.value,
                "offset": one.correction.offset,
                "ratio": one.correction.ratio,
                "margin": one.correction.share,
                "answers": one.answers,
            }
            for one in cache.calibrations(model, tenant)
        ],
        "agreed": [_agreed(shape, *cache.consensus(model, shape, start)) for shape in Shape],
    }


def _agreed(shape: Shape, voters: int, found: Correction | None) -> dict[str, Any]:
    """What the callers with a vote agree on for others; None where they are too few."""
    offset, ratio = (None, None) if found is None else (found.offset, found.ratio)
    return {"shape": shape.value, "callers": voters, "offset": offset, "ratio": ratio}


def learned_everywhere(cache: Cache, others: Mapping[str, Cache], families: Families, model: str) -> dict[str, Any]:
    """The records of a model at all upstreams. `others` are the caches of upstreams with a name, which their records
    have."""
    records = learned_of(cache, families, model)
    for name, other in others.items():
        there = learned_of(other, families, model)
        for kind in ("limits", "counts"):
            records[kind] += [{**record, "upstream": name} for record in there[kind]]
    return records


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def is_token(given: bytes | None, token: str) -> bool:
    """Whether a header has the token; the comparison takes the same time for all wrong ones."""
    return hmac.compare_digest(given or b"", token.encode())


def no_token() -> ClientError:
    """A request lacks the token (`PLIMSOLL_ADMIN_TOKEN`)."""
    return ClientError(401, "This takes the header x-plimsoll-admin with the token.", code="token_required")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a listener on a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refusal_of(headers: Headers, settings: Settings) -> ClientError | None:
    """The error for a request that may not read or delete records; None if it may. Without an admin port, the data port
    serves them if only this machine can connect to it."""
    if settings.admin_port is None and not is_loopback(settings.host):
        text = "This takes an admin port (PLIMSOLL_ADMIN_PORT), or a PLIMSOLL_HOST that only this machine reaches."
        return ClientError(403, text, code="admin_only")
    token = settings.admin_token or "1"
    if value_of(headers, b"origin") is not None or not is_token(value_of(headers, ASKED), token):
        shown = "1" if settings.admin_token is None else "TOKEN (PLIMSOLL_ADMIN_TOKEN)"
        text = f"This needs the header x-plimsoll-admin: {shown}, and none named origin."
        return ClientError(403, text, code="admin_only")
    return None


@dataclass(frozen=True, slots=True)
class Learning:
    """Answers with the records of a model; if `forgets`, it also deletes them. `others` are the caches of the other
    upstreams, by name: their records have the name."""

    settings: Settings
    families: Families
    cache: Cache
    budget: Budget
    forgets: bool = False
    others: Mapping[str, Cache] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            found = await self._records(scope, receive)
        except ClientError as error:
            await send_error(send, error, error_body(scope["path"], error))
            return
        except ClientDisconnected:
            return
        payload = msgspec.json.encode(found)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(payload))]
        headers.append((b"cache-control", b"no-store"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else payload})

    async def _records(self, scope: Scope, receive: Receive) -> dict[str, Any]:
        refusal = refusal_of(scope["headers"], self.settings)
        if refusal is not None:
            raise refusal
        if not self.forgets:
            query = parse_qs(scope["query_string"].decode("latin-1"))
            return learned_everywhere(self.cache, self.others, self.families, _asked(query.get("model", ())))
        room = self.budget.room(scope)
        try:
            body = await read_body(scope, receive, MOST_BYTES, self.settings.body_timeout, room)
            model = _asked((_NAMED.decode(body).model,))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise _unnamed() from None
        finally:
            room.release()
        records = learned_everywhere(self.cache, self.others, self.families, model)
        self.cache.forget(model)
        return records


def _asked(names: Sequence[str]) -> str:
    if len(names) != 1 or not names[0]:
        raise _unnamed()
    return names[0]


def _unnamed() -> ClientError:
    text = 'Name one model: GET /learned?model=NAME, or POST /forget with {"model": "NAME"}.'
    return ClientError(400, text, code="no_model", param="model")
