"""What we ourselves tell clients, in OpenAI's error shape; it knows no request and no upstream."""

from __future__ import annotations

import msgspec


class ConfigError(ValueError):
    """A wrong setting or rules file; its text names the file or setting, the row and the reason."""


def error_body(message: str, kind: str = "invalid_request_error", code: str = "", param: str | None = None) -> bytes:
    """JSON of OpenAI's error contract: all four keys are always there."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code or None}})


class ClientError(Exception):
    """An answer of our own to a request that we did not pass on: HTTP status and the four keys of the error body.

    `retry` says whether the same request may do better later (`x-should-retry`, which OpenAI's clients heed), `after`
    in how many seconds (`retry-after`; 0: nothing is said).
    """

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        code: str = "",
        param: str | None = None,
        retry: bool = False,
        after: int = 0,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.code, self.param, self.retry, self.after = code, param, retry, after

    def body(self) -> bytes:
        """The JSON that the client gets."""
        return error_body(self.message, self.kind, self.code, self.param)


def too_large(limit: int) -> ClientError:
    """The body is over `PLIMSOLL_MAX_BODY` bytes."""
    return ClientError(
        413, f"The request body is larger than the {limit:,} bytes that this proxy takes.", code="body_too_large"
    )


def over_budget() -> ClientError:
    """The body is so large that `PLIMSOLL_MAX_MEMORY` could never hold it."""
    text = "The request body is larger than the memory that this proxy may use for bodies (PLIMSOLL_MAX_MEMORY)."
    return ClientError(413, text, code="body_too_large")


def overloaded() -> ClientError:
    """No memory became free for the body in time."""
    text = "This proxy has no memory left for the request's body just now."
    return ClientError(503, text, kind="server_error", code="overloaded", retry=True, after=1)


def does_not_fit(prompt: int, reply: int, margin: int, window: int, takers: str) -> ClientError:
    """Nothing more can be cut; `takers` names what takes the room. The text has the code, too: LangChain's Python
    client looks for it there."""
    return ClientError(
        400,
        f"This model's maximum context length is {window} tokens. However, your request needs at least "
        f"{prompt + reply + margin} tokens ({prompt} in the prompt, {reply} for the completion, {margin} margin) "
        f"after everything that may be cut was cut: {takers} (context_length_exceeded).",
        code="context_length_exceeded",
        param="messages",
    )


def not_understood(reason: str) -> ClientError:
    """Strict mode: what cannot be understood or measured is not passed on."""
    return ClientError(
        400, f"This proxy runs in strict mode and could not understand the request: {reason}.", code="not_understood"
    )


def bad_header(name: str, reason: str) -> ClientError:
    """A control header of ours with a value that means nothing."""
    return ClientError(400, f"The request header {name} {reason}.", code="invalid_header", param=name)


def stopped() -> ClientError:
    """The server stops, and has waited long enough for this request."""
    text = "The proxy is stopping and could not wait for this request to end."
    return ClientError(503, text, kind="server_error", code="proxy_stopped", retry=True)


def not_found() -> ClientError:
    """A path of our own that is not here; it never goes to the upstream."""
    return ClientError(404, "There is nothing at this path of the proxy.", code="not_found")


def wrong_method(allowed: str) -> ClientError:
    """A path of our own that takes other methods."""
    return ClientError(405, f"This path of the proxy takes {allowed} alone.", code="method_not_allowed")
