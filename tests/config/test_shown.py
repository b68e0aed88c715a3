"""The settings as an operator may see them."""

from __future__ import annotations

import pytest

from proxy.config.settings import SETTINGS, read_settings
from proxy.config.shown import shown_settings, without_credentials

SECRETS = {
    "PLIMSOLL_SECRET": "s3cret-hash-key",
    "PLIMSOLL_REDIS": "redis://me:s3cret@redis:6379/0",
    "PLIMSOLL_API_KEY": "sk-s3cret",
    "PLIMSOLL_ADMIN_TOKEN": "s3cret-0123456789",
    "HTTP_PROXY": "http://me:s3cret@proxy:3128",
    "HTTPS_PROXY": "http://me:s3cret@proxy:3128",
    "PLIMSOLL_SUMMARY_API_KEY": "sk-s3cret",
    "PLIMSOLL_EMBEDDINGS_API_KEY": "sk-s3cret",
}


def test_every_setting_is_shown_and_no_secret() -> None:
    assert {s.name for s in SETTINGS if s.confidential} == set(SECRETS)
    found = shown_settings(read_settings(SECRETS))
    assert [one["name"] for one in found] == [s.name for s in SETTINGS]
    assert "s3cret" not in str(found)
    assert {one["name"] for one in found if one["value"] == "set"} == set(SECRETS)


def test_a_value_is_shown_as_it_is_written() -> None:
    given = {
        "PLIMSOLL_MODE": "strict",
        "PLIMSOLL_READ_TIMEOUT": "90",
        "PLIMSOLL_MODELS_WINDOWS": "yes",
        "NO_PROXY": "a,b",
        "PLIMSOLL_RULES": "/etc/rules",
    }
    found = {one["name"]: one for one in shown_settings(read_settings(given))}
    assert [found[name]["value"] for name in given] == ["strict", "90", "true", "a, b", "/etc/rules"]
    assert not any(found[name]["default"] for name in given)
    assert found["PLIMSOLL_PORT"] == {"name": "PLIMSOLL_PORT", "value": "8080", "default": True}
    assert found["PLIMSOLL_MAX_MEMORY"]["value"] == "" and found["PLIMSOLL_SECRET"]["value"] == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host:1/v1?key=k#f", "https://host:1/v1"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
        ("me:pw@host", "host"),
        ("plain text", "plain text"),
        ("http://host:port/", "set"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
    ],
)
def test_a_url_is_shown_without_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
