"""How severe the trouble is that a line reports, and whether a question is about trouble."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.text.severity import (
    ASKS,
    ERROR,
    EXCEPTION,
    WARNING,
    WORD,
    severities_of_lines,
    severity_of,
)
from proxy.fit.relevance.text.splitting import distinct_tokens, tokens_by_line
from proxy.fit.relevance.text.words import severities


def severity(line: str) -> int:
    """The severity of one line; 0 for a calm one."""
    tokens = tokens_by_line([line])
    said = distinct_tokens(tokens)
    return severities_of_lines([line], tokens, said, severities(said)).get(0, 0)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (("ERROR", "ERR", "FATAL", "CRITICAL", "SEVERE", "Traceback", "FAILED"), ERROR),
        (("WARN", "WARNING"), WARNING),
        (("java.io.IOException", "ValueError"), EXCEPTION),
        (("error", "timeout", "Warning", "failed"), WORD),
        (("fine", "terror", "Exceptional", "MyErrors"), 0),
    ],
)
def test_a_token_has_a_severity(tokens: tuple[str, ...], expected: int) -> None:
    assert {severity_of(token) for token in tokens} == {expected}


@pytest.mark.parametrize(
    "line",
    [
        "Nov 22 10:00:00 mac storaged[71]: <Error>: volume is dirty",
        "2026/11/22 10:00:00 [crit] 7#7: *9 open() was not possible",
        "2026/11/22 10:00:00 [ emerg ] 7#7: bind()",
        'time="10:00" level=fatal msg="no space left"',
        '{"severity": "error", "msg": "rolled back"}',
        "2026-11-22 10:00:00.1+0100 0xce773    Fault       0x0    71 0 storaged: dirty",
        "src/main.c:10:5: fatal error: stdio.h: No such file or directory",
        "panic: runtime error: index out of range [5]",
        "E/ActivityManager(1702): not responding",
        "03-17 16:13:38.811  1702  2395 E WindowManager: no window",
        "E1122 10:00:00.123456 1 reconciler.go:33] no volume",
        '7.7.7.7 - - [22/Nov/2026] "GET /pay HTTP/1.1" 503 0 "-"',
        '"GET /servers HTTP/1.1" status: 500 len: 7',
        '{"status":502,"route":"/pay"}',
    ],
)
def test_a_line_states_an_error_in_the_forms_of_log_formats(line: str) -> None:
    assert severity(line) == ERROR


@pytest.mark.parametrize("line", ["x [warn] 7#7: slow", "<Warning>: key", "W/Tag: x", "level=warning", "WARN retry"])
def test_a_line_states_a_warning(line: str) -> None:
    assert severity(line) == WARNING


def test_a_warning_that_names_an_exception_is_a_warning() -> None:
    assert severity("WARN retry after java.io.IOException") == WARNING
    assert severity("ERROR WARN java.io.IOException") == ERROR and severity("java.io.IOException: gone") == EXCEPTION


@pytest.mark.parametrize(
    "line",
    [
        "took 503 ms",
        '"GET /p HTTP/1.1" 200 512',
        "E = m c2",
        "the E of it",
        "an alert was read",
        "status: 200 len: 500",
    ],
)
def test_a_number_or_a_letter_alone_is_no_trouble(line: str) -> None:
    assert severity(line) == 0


@pytest.mark.parametrize(
    "question",
    [
        "why is it red?",
        "What went wrong?",
        "Are there warnings?",
        "Was ist schiefgelaufen?",
        "Y a-t-il une erreur ?",
        "¿Qué falló?",
        "Есть ли ошибки?",
        "哪里出了故障",
        "エラーはありますか",
    ],
)
def test_a_question_may_be_about_trouble(question: str) -> None:
    assert ASKS.search(question)


@pytest.mark.parametrize("question", ["What is it?", "Was gibt es Neues?", "Который час?", "What does thermald do?"])
def test_others_are_not(question: str) -> None:
    assert not ASKS.search(question)
