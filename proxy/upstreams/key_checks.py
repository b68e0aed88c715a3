"""Whether an upstream checks the keys of its clients: by a row of key_checks.toml, or because it refused one.

Only there a key names a caller. Where any key is answered, a client can be as many callers as it likes. This module
sends nothing and keeps no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from proxy.config.key_checks import KeyCheck, row_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.headers import CREDENTIALS, QUERY, value_of
from proxy.wire.paths import KEY_IN_QUERY

UNAUTHORIZED, FORBIDDEN = 401, 403
REFUSING = frozenset((UNAUTHORIZED, FORBIDDEN))
NAME = itemgetter(0)  # of a header
FROM_A_PAGE = b"origin"  # servers on one's own machine answer 403 to pages of other sites, whatever the key


@dataclass(slots=True)
class KeyChecks:
    """What is known of one upstream: its `host` or litellm's name of its `provider`, what the rows `say`, and whether
    it refused a key since the start. `probe`: the path by which it can be asked for a key; empty if there is none."""

    host: str = ""
    provider: str = ""
    says: bool | None = None
    refused: bool = False
    probe: str = ""

    def use_rows(self, rows: Sequence[KeyCheck]) -> None:
        """Uses these rows from now on."""
        row = row_of(rows, self.host, self.provider)
        self.says, self.probe = (None, "") if row is None else (row.checks, row.probe)

    @property
    def checked(self) -> bool:
        """Whether the upstream checks keys: what it answered with 2xx was sent with a key that it knows."""
        return self.refused if self.says is None else self.says

    def record_response(self, headers: Headers, status: int) -> None:
        """Records the HTTP status of the upstream's response to a client's own request, which these headers went with.
        Only a refused key counts: a request without one says nothing of further keys."""
        if status in REFUSING and not self.refused and brings_credential(headers):
            self.refused = status == UNAUTHORIZED or value_of(headers, FROM_A_PAGE) is None


def brings_credential(headers: Headers) -> bool:
    """Whether a request has a key of the client's own, in its headers or in its query."""
    if not CREDENTIALS.isdisjoint(map(NAME, headers)):  # a third of the time of a loop
        return True
    return KEY_IN_QUERY.search(value_of(headers, QUERY) or b"") is not None
