"""Errors in OpenAI's shape, and the order of checks."""

from __future__ import annotations

import json
from typing import Any

from proxy.simulator.check import ApiError, Body, empty_array, invalid, invalid_type, validate
from proxy.simulator.shapes import TEXT, wrong_type


def error_of(error: ApiError | None) -> Any:
    assert error is not None and error.status == 400
    return json.loads(error.body())["error"]


def test_an_error_has_all_four_keys() -> None:
    assert error_of(ApiError(400, "text")) == {
        "message": "text",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    assert error_of(invalid("text", "c", "p"))["code"] == "c" and error_of(empty_array("p"))["param"] == "p"


def test_a_wrong_type_is_named_with_its_path() -> None:
    wrong = wrong_type({"a": [{"b": 1}]}, {"a": [{"b": TEXT}]})
    assert wrong is not None
    assert error_of(invalid_type(wrong))["message"] == (
        "Invalid type for 'a[0].b': expected a string, but got an integer instead."
    )


def test_the_first_check_that_fails_says_why_and_no_later_one_is_made() -> None:
    made: list[str] = []

    def check(name: str, fails: bool) -> Any:
        def one(body: Body) -> ApiError | None:
            made.append(name)
            return ApiError(400, name) if fails else None

        return one

    error = validate({}, [check("a", False), check("b", True), check("c", True)])
    assert error_of(error)["message"] == "b" and made == ["a", "b"]
    assert validate({}, [check("a", False)]) is None
