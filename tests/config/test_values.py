from __future__ import annotations

import pytest

from proxy.config import values
from proxy.config.values import Parser
from proxy.model.plan import Mode


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("7", 7), ("200000", 200_000), ("200_000", 200_000), ("200,000", 200_000), ("1,048,576", 1048576)],
)
def test_whole_numbers_may_be_written_with_marks_between_thousands(text: str, parsed: int) -> None:
    assert values.whole(1)(text) == parsed


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1e5", "0x10", "1_00", "00,", "٣", "9" * 30, "70000"])
def test_what_is_no_whole_number_in_the_range_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a whole number from 1 to 65535"):
        values.whole(1, 65535)(text)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("67108864", 2**26),
        ("64MiB", 2**26),
        ("64 mib", 2**26),
        ("10MB", 10**7),
        ("1.5KiB", 1536),
        ("2gb", 2 * 10**9),
        ("1b", 1),
    ],
)
def test_sizes_have_decimal_and_binary_units(text: str, parsed: int) -> None:
    assert values.size(text) == parsed


@pytest.mark.parametrize("text", ["0", "-1", "64M", "MiB", "1e3", "inf", "nan", "٣MB"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="must be a size such as"):
        values.size(text)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("5", 5.0), ("0.5", 0.5), (".5", 0.5), ("250ms", 0.25), ("30s", 30.0), ("10m", 600.0), ("1h", 3600.0)],
)
def test_timeouts_are_seconds_unless_they_say_otherwise(text: str, parsed: float) -> None:
    assert values.timeout(text) == parsed


@pytest.mark.parametrize("text", ["0", "-5", "soon", "inf", "5 days", ""])
def test_a_timeout_is_over_zero(text: str) -> None:
    with pytest.raises(ValueError, match="must be seconds above 0"):
        values.timeout(text)


def test_patience_may_be_none_at_all() -> None:
    assert values.duration("0") == 0.0


@pytest.mark.parametrize(
    ("text", "parsed"), [("true", True), ("ON", True), ("1", True), ("no", False), ("False", False)]
)
def test_yes_and_no_have_many_words(text: str, parsed: bool) -> None:
    assert values.boolean(text) is parsed


def test_other_words_are_neither_yes_nor_no() -> None:
    with pytest.raises(ValueError, match=r"is 'maybe', must be true or false"):
        values.boolean("maybe")


def test_a_mode_is_one_of_four_words() -> None:
    assert values.mode("Observe") is Mode.OBSERVE
    with pytest.raises(ValueError, match=r"is 'on', must be one of off, observe, fit, strict"):
        values.mode("on")


def test_names_stand_between_commas_each_once() -> None:
    assert values.names(" openai/gpt-5-mini,, gemini-2.5-flash ,openai/gpt-5-mini") == (
        "openai/gpt-5-mini",
        "gemini-2.5-flash",
    )
    assert values.names("") == ()


@pytest.mark.parametrize("text", ["../secret", "a b", "", "-x", "ä"])
def test_a_ladders_name_is_a_plain_word(text: str) -> None:
    with pytest.raises(ValueError, match="must be a ladder's name"):
        values.ladder_name(text)


def test_a_host_may_be_an_address_in_brackets() -> None:
    assert [values.host(h) for h in ("127.0.0.1", "[::1]", "localhost")] == ["127.0.0.1", "::1", "localhost"]
    with pytest.raises(ValueError, match="must be a host name or an address"):
        values.host("http://localhost")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("HTTP://[::1]:9/v1", "HTTP://[::1]:9/v1"),
        ("https://api.example/ai/@cf/v1", "https://api.example/ai/@cf/v1"),
    ],
)
def test_an_upstream_is_a_url_without_its_last_slash(text: str, parsed: str) -> None:
    assert values.upstream(text) == parsed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("api.openai.com/v1", "not a plain http"),
        ("ftp://host/v1", "not a plain http"),
        ("https://host/v1?key=x", "not a plain http"),
        ("https://host/v1#x", "not a plain http"),
        ("https:///v1", "no host"),
        ("https://host:99999/v1", "invalid port"),
        ("https://host:0/v1", "invalid port"),
        ("https://[::1/v1", "no host"),
        ("https://user:hunter2@host/v1", "a user or a password"),
        ("user:hunter2@host/v1", "a user or a password"),
        ("https://user:hunter2@[bad/v1", "a user or a password"),
    ],
)
def test_a_wrong_upstream_is_explained_and_never_repeated(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        values.upstream(text)
    assert "hunter2" not in str(caught.value)
    assert "https://api.openai.com/v1" in str(caught.value)


def test_a_caches_url_needs_a_scheme_and_is_never_repeated() -> None:
    assert values.cache("rediss://:hunter2@redis:6380/1") == "rediss://:hunter2@redis:6380/1"
    with pytest.raises(ValueError, match="is not a URL") as caught:
        values.cache(":hunter2@redis")
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_its_bytes_even_where_they_are_no_text() -> None:
    assert values.secret("pässword\udcff") == "pässword".encode() + b"\xff"


def test_a_key_must_be_able_to_stand_in_a_header_and_is_never_repeated() -> None:
    assert values.key("sk-abc_123") == "sk-abc_123"
    with pytest.raises(ValueError, match="no header may contain") as caught:
        values.key("sk-abc\nx-evil: 1")
    assert "sk-abc" not in str(caught.value)


@pytest.mark.parametrize(("parse", "parsed"), [(values.whole(1), None), (values.cache, None)])
def test_nothing_given_is_none_where_that_is_allowed(parse: Parser, parsed: object) -> None:
    assert values.optional(parse)("") is parsed
    assert values.optional(str)("x") == "x"


def test_a_long_wrong_value_is_shown_short() -> None:
    assert values.quoted("x" * 100) == repr("x" * 57 + "...")


def test_the_name_of_a_header_is_in_lower_case() -> None:
    assert values.header_name("X-Team") == "x-team"
    for wrong in ("x team", "x:team", "", "x" * 101, "x-täam"):
        with pytest.raises(ValueError, match="must be the name of a header"):
            values.header_name(wrong)


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", ()),
        ("https://Chat.example.com/, http://localhost:3000", ("https://chat.example.com", "http://localhost:3000")),
        ("http://[::1]:3000,my-app://main", ("http://[::1]:3000", "my-app://main")),
    ],
)
def test_origins_have_a_scheme_and_a_host(text: str, origins: tuple[str, ...]) -> None:
    assert values.origins(text) == origins


@pytest.mark.parametrize(
    "text", ["*", "null", "chat.example.com", "https://", "https://*.example.com", "https://a/b", "https://a:b"]
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be origins such as"):
        values.origins(text)


@pytest.mark.parametrize(
    ("text", "parsed"), [("32000", 32_000), ("32_000", 32_000), ("32k", 32_000), ("1.5K", 1_500), ("1M", 1_000_000)]
)
def test_U12_tokens_may_be_thousands_and_millions(text: str, parsed: int) -> None:
    assert values.tokens(text) == parsed


@pytest.mark.parametrize("text", ["0", "-1", "32kb", "k", "many", "0.5"])
def test_U12_what_is_no_number_of_tokens_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number of tokens such as 32000, 32k or 1M"):
        values.tokens(text)
