"""The proxy's own errors: what a client is told when it gets no upstream's response.

Their JSON belongs to the API of the request's path (`proxy.apis.error_body`).
"""

from __future__ import annotations

from collections.abc import Sequence


class ConfigError(ValueError):
    """A wrong setting or rules file. The text names the file or the setting, the row and the reason."""


class ClientError(Exception):
    """An error response of the proxy's own, to a request that it did not forward or whose upstream failed.

    `status` is the HTTP status, `message` the text for people (without content of the request), `code` the code for
    programs, `param` the header or field that is wrong. `retry` means that the same request may succeed later
    (`x-should-retry`, which OpenAI's clients read), `after` in how many seconds (`retry-after`; 0: not known). Of a
    request that is too long, `figures` are the prompt that was asked, the reply and the window, in tokens.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str = "",
        param: str | None = None,
        retry: bool = False,
        after: int = 0,
        figures: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.figures = figures
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry, self.after = retry, after


CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
INSUFFICIENT_QUOTA = "insufficient_quota"
MAX_NAMED = 20  # inputs that an error names


def too_large(limit: int) -> ClientError:
    """The body is over `limit` bytes (`PLIMSOLL_MAX_BODY`)."""
    text = f"The request body is larger than the {limit:,} bytes that this proxy accepts."
    return ClientError(413, text, code="body_too_large")


def over_budget() -> ClientError:
    """The body is larger than all of `PLIMSOLL_MAX_MEMORY`."""
    text = "The request body is larger than the memory that this proxy may use for bodies (PLIMSOLL_MAX_MEMORY)."
    return ClientError(413, text, code="body_too_large")


def overloaded() -> ClientError:
    """No memory became free for the body in time."""
    text = "This proxy has no memory left for the request's body at the moment."
    return ClientError(503, text, code="overloaded", retry=True, after=1)


def does_not_fit(prompt: int, reply: int, margin: int, window: int, takers: str, asked: int = 0) -> ClientError:
    """The request is too long, and nothing more can be cut. All figures are in tokens.

    `asked` is the prompt before anything was cut. `takers` names the largest parts of the request. The text contains
    the code, because LangChain's Python client looks for it there.
    """
    return ClientError(
        400,
        f"This model's maximum context length is {window} tokens. However, your request needs at least "
        f"{prompt + reply + margin} tokens ({prompt} in the prompt, {reply} for the completion, {margin} margin) "
        f"after everything that may be cut was cut: {takers} ({CONTEXT_LENGTH_EXCEEDED}).",
        code=CONTEXT_LENGTH_EXCEEDED,
        figures=(asked or prompt, reply, window),
    )


def inputs_do_not_fit(found: Sequence[tuple[int, int]], limit: int) -> ClientError:
    """Inputs of a request for embeddings are too long: index and tokens of each. It begins as OpenAI's own error."""
    index, most = found[0]
    named = ", ".join(f"{i} ({tokens:,} tokens)" for i, tokens in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED:,} more" if len(found) > MAX_NAMED else ""
    return ClientError(
        400,
        f"Invalid 'input[{index}]': maximum input length is {limit} tokens. Too long: {named}{more}. A rule may cut "
        f"them: step truncate_inputs ({CONTEXT_LENGTH_EXCEEDED}).",
        code=CONTEXT_LENGTH_EXCEEDED,
        param=f"input[{index}]",
        figures=(most, 0, limit),
    )


def not_understood(reason: str) -> ClientError:
    """The request cannot be understood or counted, and the mode is strict."""
    return ClientError(
        400, f"This proxy runs in strict mode and could not understand the request: {reason}.", code="not_understood"
    )


def bad_header(name: str, reason: str) -> ClientError:
    """One of the proxy's own request headers has an invalid value."""
    return ClientError(400, f"The request header {name} {reason}.", code="invalid_header", param=name)


def stopped() -> ClientError:
    """The server is stopping, and the time for requests to end is over."""
    text = "The proxy is stopping and could not wait for this request to end."
    return ClientError(503, text, code="proxy_stopped", retry=True)


def websocket_refused() -> ClientError:
    """A WebSocket on a path whose requests are fitted: what goes through it cannot be."""
    text = "This path is served over plain HTTP here: what goes through a WebSocket cannot be made to fit."
    return ClientError(426, text, code="websocket_refused")


def not_found(hint: str = "") -> ClientError:
    """An unknown path among the proxy's own, which are never forwarded. `hint`: a sentence on where to go."""
    return ClientError(404, f"There is nothing at this path of the proxy. {hint}".rstrip(), code="not_found")


def wrong_method(allowed: str) -> ClientError:
    """One of the proxy's own paths, with a method that it does not allow."""
    return ClientError(405, f"This path of the proxy allows only {allowed}.", code="method_not_allowed")
