"""What we ourselves tell clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy.errors import ClientError, ConfigError, bad_header, does_not_fit, not_understood, too_large


def test_a_request_that_cannot_fit_is_told_all_its_figures() -> None:
    error = does_not_fit(7200, 500, 100, 4096, "tools alone take 7,100 of 4,096")
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", None)
    assert error.message == (
        "This model's maximum context length is 4096 tokens. However, your request needs at least 7800 tokens (7200 in"
        " the prompt, 500 for the completion, 100 margin) after everything that may be cut was cut: tools alone take"
        " 7,100 of 4,096 (context_length_exceeded)."
    )


@pytest.mark.parametrize(
    ("error", "status", "code", "said"),
    [
        (too_large(67108864), 413, "body_too_large", "67,108,864 bytes"),
        (not_understood("it is no JSON"), 400, "not_understood", "it is no JSON"),
        (bad_header("x-plimsoll-mode", "must be one of a, b"), 400, "invalid_header", "x-plimsoll-mode must be one of"),
    ],
)
def test_every_error_names_its_reason(error: ClientError, status: int, code: str, said: str) -> None:
    assert (error.status, error.code) == (status, code) and said in error.message
    assert str(error) == error.message and not error.retry


def test_an_error_passes_through_a_context_manager_as_it_is() -> None:
    @contextmanager
    def anything() -> Iterator[None]:
        yield

    with pytest.raises(ClientError) as caught, anything():
        raise too_large(5)
    assert caught.value.status == 413 and str(caught.value) == caught.value.message


def test_a_wrong_setting_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)
