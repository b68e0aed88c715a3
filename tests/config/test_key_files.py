"""Settings that are read from a mounted folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.key_files import MAX_BYTES, with_key_files
from proxy.config.settings import read_settings
from proxy.errors import ConfigError
from tests.mounts import Mount


def mounted(folder: Path, **files: str) -> Path:
    return Mount(folder / "keys", **files).folder


def test_a_file_is_a_setting_and_outranks_the_variable(tmp_path: Path) -> None:
    folder = mounted(tmp_path, PLIMSOLL_API_KEY="sk-of-the-file\n", LLM_FALLBACK_ENABLED="true", unrelated="x")
    environ = {"PLIMSOLL_KEYS": str(folder), "PLIMSOLL_API_KEY": "sk-of-the-variable", "PLIMSOLL_MODE": "off"}
    found = with_key_files(environ)
    assert found.keys() - environ.keys() == {"LLM_FALLBACK_ENABLED"}
    settings = read_settings(found)
    assert (settings.api_key, settings.mode, settings.keys) == ("sk-of-the-file", "off", folder)
    assert settings.llm_fallback_enabled


def test_the_key_of_a_collector_may_be_a_file(tmp_path: Path) -> None:
    folder = mounted(tmp_path, OTEL_EXPORTER_OTLP_TRACES_HEADERS="api-key=of-the-file\n", other="x")
    environ = {"PLIMSOLL_KEYS": str(folder), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    found = with_key_files(environ)
    assert found.keys() - environ.keys() == {"OTEL_EXPORTER_OTLP_TRACES_HEADERS"}
    traces = read_settings(found).traces
    assert traces is not None and traces.headers == (("api-key", "of-the-file"),)


def test_without_a_folder_the_environment_is_what_it_was() -> None:
    for environ in ({}, {"PLIMSOLL_KEYS": " "}):
        assert with_key_files(environ) is environ


def test_a_flag_names_another_folder_than_the_variable(tmp_path: Path) -> None:
    folder = mounted(tmp_path, PLIMSOLL_SECRET="s", PLIMSOLL_KEYS="/nowhere")
    assert with_key_files({"PLIMSOLL_KEYS": "/nowhere"}, str(folder)) == {
        "PLIMSOLL_KEYS": "/nowhere",
        "PLIMSOLL_SECRET": "s",
    }


def test_a_secret_is_the_same_bytes_in_a_file_and_in_a_variable(tmp_path: Path) -> None:
    secret = b"\xff\x00 \xc3\xa9"
    (tmp_path / "PLIMSOLL_SECRET").write_bytes(secret + b"\n")
    of_variable = secret.decode("utf-8", "surrogateescape")
    from_file = read_settings(with_key_files({"PLIMSOLL_KEYS": str(tmp_path)})).secret
    assert from_file == read_settings({"PLIMSOLL_SECRET": of_variable}).secret == secret


def test_a_misspelt_name_is_kept_to_be_told(tmp_path: Path) -> None:
    folder = mounted(tmp_path, PLIMSOLL_APIKEY="x")
    assert "PLIMSOLL_APIKEY" in with_key_files({"PLIMSOLL_KEYS": str(folder)})


def test_what_cannot_be_read_is_said_without_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PLIMSOLL_KEYS: no such folder: /nowhere"):
        with_key_files({"PLIMSOLL_KEYS": "/nowhere"})
    (tmp_path / "PLIMSOLL_SECRET").write_text("canary" * MAX_BYTES)
    with pytest.raises(ConfigError) as raised:
        with_key_files({"PLIMSOLL_KEYS": str(tmp_path)})
    assert str(raised.value) == f"PLIMSOLL_KEYS: {tmp_path / 'PLIMSOLL_SECRET'}: is over {MAX_BYTES} bytes"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "PLIMSOLL_SECRET").write_text("s")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match="PLIMSOLL_SECRET: cannot be read: Permission denied"):
        with_key_files({"PLIMSOLL_KEYS": str(tmp_path)})
