"""What happens when the proxy itself fails: the failure is logged and counted, and the request goes on without us."""

from __future__ import annotations

from proxy.errors import ClientError
from proxy.observe import log
from proxy.request.stages import Record

FAILED = ClientError(500, "The proxy itself failed.", code="proxy_error")


def report_bug(record: Record, error: Exception) -> None:
    """Logs an exception of the proxy's own code and sets the result to `bug`. The exception's text may contain content:
    only its type and place are logged."""
    record.result = "bug"
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{place.tb_lineno}" if place else ""
    log.event("a bug of ours was caught", kind=type(error).__name__, at=where)
