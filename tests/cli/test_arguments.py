"""The settings on the command line: their flags, and what is said of wrong ones."""

from __future__ import annotations

import pytest

from proxy.cli.arguments import KINDS, empty_keys, hint, kind_of
from proxy.cli.main import parser
from proxy.config.settings import SETTINGS
from tests.cli.test_main import clean, ended, long

__all__ = ["clean", "long"]  # the fixtures


def test_each_setting_is_a_flag_of_serve_and_shows_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    told = " ".join(ended(capsys, "serve", "--help")[1].split())
    for setting in SETTINGS:
        assert f"{setting.flag} {kind_of(setting)}" in told
        assert f"{setting.help} (default: {setting.default or 'none'})" in told


def test_U15_the_help_says_what_follows_a_flag() -> None:
    kinds = {setting.name: kind_of(setting) for setting in SETTINGS}
    assert {*kinds.values()} == {*KINDS.values(), "true|false", "VALUE"}
    assert kinds["PLIMSOLL_UPSTREAM"] == kinds["HTTPS_PROXY"] == "URL"
    assert kinds["PLIMSOLL_READ_TIMEOUT"] == "SECONDS" and kinds["CONTEXT_TOTAL_TOKEN_LIMIT"] == "TOKENS"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--port", "eighty"], "--port is 'eighty', must be a whole number from 0 to 65535"),
        (["--upstream", "ftp://x"], "--upstream is not a plain http or https URL"),
        (["--upstream", "http://x/v1/chat/completions"], "--upstream ends in /chat/completions, which clients add"),
        (["--mode", "fast", "--workers", "0"], "--mode is 'fast', must be one of off, observe, fit, strict"),
        (["--rules", "/nowhere"], "no such folder: /nowhere"),
        (["--ladder", "rope"], "--ladder is 'rope', must be one of agent, chat, compaction, default"),
        (["--redis", "memcached://x"], "--redis must begin with redis://"),
        (["--host", "192.0.2.1", "--port", "0"], "cannot listen on 192.0.2.1, port 0: "),
        (["--port", "9", "--admin-port", "9"], "--admin-port is 9, the proxy's own port"),
        (["--context-total-token-limit", "3x"], "must be a number of tokens such as 32000, 32k or 1M"),
        (["--port", "0", "--admin-port", "1", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
    ],
)
def test_wrong_settings_end_with_code_2_and_the_reason(
    capsys: pytest.CaptureFixture[str], argv: list[str], reason: str
) -> None:
    code, out, err = ended(capsys, "serve", *argv)
    assert (code, out) == (2, "")
    assert err.startswith("plimsoll: ") and reason in err


def test_every_wrong_setting_is_named_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_DRAIN", "soon")
    monkeypatch.setenv("PLIMSOLL_UPSTRAEM", "http://x")
    code, _, err = ended(capsys, "serve", "--port", "x", "--workers", "-1")
    assert code == 2
    for told in ("--port is", "--workers is", "PLIMSOLL_DRAIN is 'soon'", "did you mean PLIMSOLL_UPSTREAM?"):
        assert told in err


def test_traces_meant_for_other_programs_stop_no_command_but_serve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert ended(capsys, "inspect", long)[0] == 0
    code, _, err = ended(capsys, "serve")
    assert (code, err.count("\n")) == (2, 1) and "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("servee",), "; did you mean serve?"),
        (("serve", "--prot", "9"), "; did you mean --port?"),
        (("inspect", "--config", "x.yaml", "-"), "; there is no configuration file: settings are flags"),
        (("serve", "--config=x.yaml"), "; there is no configuration file: settings are flags"),
    ],
)
def test_U12_what_was_probably_meant_is_said(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(argv)
    assert end.value.code == 2 and said in capsys.readouterr().err


def test_U12_what_is_like_nothing_gets_no_hint() -> None:
    assert hint("--zzz", ("serve",)) == ""


def test_U11_an_empty_key_is_told_and_no_key_is_not() -> None:
    assert empty_keys(parser().parse_args(["serve", "--api-key", " "])) == ("--api-key is empty: there is no such key",)
    assert empty_keys(parser().parse_args(["serve", "--api-key", "sk-x"])) == ()
    assert empty_keys(parser().parse_args(["serve"])) == ()


def test_U12_a_window_takes_thousands(capsys: pytest.CaptureFixture[str], long: str) -> None:
    found = [ended(capsys, "inspect", "--json", "--window", text, long)[1] for text in ("4k", "4000")]
    assert found[0] == found[1] != ""


def test_U12_a_flag_of_another_command_is_not_what_was_meant() -> None:
    assert hint("--upstream", ("serve", "--upstream")) == "; it is one of other commands"
