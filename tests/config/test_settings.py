from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy.config.settings import SETTINGS, Settings, read_settings, unknown_variables
from proxy.errors import ConfigError
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported


def test_an_empty_environment_means_the_documented_defaults() -> None:
    settings = read_settings({})
    assert (settings.upstream, settings.host, settings.port) == ("https://api.openai.com/v1", "127.0.0.1", 8080)
    assert settings.admin_host == "", "the host of the data port"
    assert (settings.admin_port, settings.secret, settings.rules, settings.redis, settings.api_key) == (None,) * 5
    assert (settings.mode, settings.ladder, settings.workers, settings.log) == (Mode.FIT, "default", 1, "auto")
    assert settings.max_body == 64 * 1024 * 1024
    assert (settings.connect_timeout, settings.read_timeout, settings.body_timeout, settings.drain) == (5, 600, 60, 30)
    assert (settings.summary_model, settings.summary_upstream, settings.summary_api_key) == ("", None, None)
    assert settings.summary_timeout == 20
    embeddings = (settings.embeddings_model, settings.embeddings_upstream, settings.embeddings_api_key)
    assert (*embeddings, settings.embeddings_timeout) == ("", None, None, 0.2)
    assert (settings.embeddings_question_prefix, settings.embeddings_passage_prefix) == ("", "")
    assert (settings.extra_calls_budget, settings.extra_calls_keyless) == (20_000_000, True)
    assert settings.llm_fallback_enabled is False
    assert settings.llm_allowed_fallback_models == ()
    assert settings.context_total_token_limit is None
    assert settings.context_recent_history_token_budget is None
    assert settings.context_rag_token_budget is None


def test_every_setting_can_be_set_by_its_variable() -> None:
    settings = read_settings(
        {
            "PLIMSOLL_UPSTREAM": "http://localhost:8000/v1/",
            "PLIMSOLL_HOST": "0.0.0.0",
            "PLIMSOLL_PORT": "0",
            "PLIMSOLL_HOSTS": "LLM.example.com, plimsoll",
            "PLIMSOLL_ORIGINS": "https://Chat.example.com/, http://localhost:3000",
            "PLIMSOLL_ADMIN_HOST": "127.0.0.2",
            "PLIMSOLL_ADMIN_PORT": "9090",
            "PLIMSOLL_ADMIN_NAMES": "Plimsoll.example.com",
            "PLIMSOLL_ADMIN_TOKEN": "0123456789abcdef",
            "PLIMSOLL_PAGE_CONTENT": "true",
            "PLIMSOLL_SECRET": " 32 random bytes\n",
            "PLIMSOLL_RULES": "/etc/plimsoll",
            "PLIMSOLL_REDIS": "redis://:pw@redis:6379/0",
            "PLIMSOLL_MODE": "strict",
            "PLIMSOLL_LADDER": "agent",
            "PLIMSOLL_USAGE": "Asked",
            "PLIMSOLL_EFFECTIVE": "64k",
            "PLIMSOLL_ON_FULL": "agent",
            "PLIMSOLL_WORKERS": "2",
            "PLIMSOLL_API_KEY": "sk-1",
            "PLIMSOLL_MAX_BODY": "10MB",
            "PLIMSOLL_MAX_MEMORY": "512MiB",
            "PLIMSOLL_MIN_RATE": "1kB",
            "PLIMSOLL_MAX_PER_ADDRESS": "50",
            "PLIMSOLL_MAX_CONNECTIONS": "100",
            "PLIMSOLL_TLS_CERT": "/etc/tls/tls.crt",
            "PLIMSOLL_TLS_KEY": "/etc/tls/tls.key",
            "PLIMSOLL_UPSTREAM_CA": "/etc/ca.pem",
            "PLIMSOLL_UPSTREAM_CERT": "/etc/cert.pem",
            "PLIMSOLL_UPSTREAM_KEY": "/etc/key.pem",
            "HTTPS_PROXY": "http://me:pw@proxy:3128",
            "HTTP_PROXY": "http://proxy:3128",
            "NO_PROXY": "localhost, .svc,10.0.0.0/8",
            "PLIMSOLL_CONNECT_TIMEOUT": "2.5",
            "PLIMSOLL_READ_TIMEOUT": "10m",
            "PLIMSOLL_BODY_TIMEOUT": "1m",
            "PLIMSOLL_DRAIN": "0",
            "PLIMSOLL_KEYS": "/etc/keys",
            "PLIMSOLL_LOG": "json",
            "PLIMSOLL_CALLER_HEADER": "X-Team",
            "PLIMSOLL_TRUSTED_PROXIES": "10.0.0.0/8, ::1",
            "PLIMSOLL_GEN_AI_METRICS": "on",
            "PLIMSOLL_RECORD": "/var/plimsoll",
            "PLIMSOLL_RECORD_CONTENT": "Redacted",
            "PLIMSOLL_RECORD_SIZE": "10GB",
            "PLIMSOLL_SUMMARY_MODEL": "openai/gpt-5-mini",
            "PLIMSOLL_SUMMARY_UPSTREAM": "http://localhost:8001/v1/",
            "PLIMSOLL_SUMMARY_API_KEY": "sk-2",
            "PLIMSOLL_SUMMARY_TIMEOUT": "500ms",
            "PLIMSOLL_EMBEDDINGS_MODEL": "text-embedding-3-small",
            "PLIMSOLL_EMBEDDINGS_UPSTREAM": "http://localhost:8002/v1/",
            "PLIMSOLL_EMBEDDINGS_API_KEY": "sk-3",
            "PLIMSOLL_EMBEDDINGS_TIMEOUT": "1s",
            "PLIMSOLL_EMBEDDINGS_QUESTION_PREFIX": "query:",
            "PLIMSOLL_EMBEDDINGS_PASSAGE_PREFIX": "passage:",
            "PLIMSOLL_COUNTER_TIMEOUT": "250ms",
            "PLIMSOLL_EXTRA_CALLS_BUDGET": "5_000",
            "PLIMSOLL_EXTRA_CALLS_KEYLESS": "no",
            "LLM_FALLBACK_ENABLED": "true",
            "LLM_ALLOWED_FALLBACK_MODELS": "openai/gpt-5-mini,gemini-2.5-flash,x-ai/grok-4-fast",
            "CONTEXT_TOTAL_TOKEN_LIMIT": "200000",
            "CONTEXT_RECENT_HISTORY_TOKEN_BUDGET": "150000",
            "CONTEXT_RAG_TOKEN_BUDGET": "50000",
        }
    )
    models = ("openai/gpt-5-mini", "gemini-2.5-flash", "x-ai/grok-4-fast")
    assert settings == Settings(
        upstream="http://localhost:8000/v1",
        host="0.0.0.0",
        port=0,
        hosts=("llm.example.com", "plimsoll"),
        origins=("https://chat.example.com", "http://localhost:3000"),
        admin_host="127.0.0.2",
        admin_port=9090,
        admin_names=("plimsoll.example.com",),
        admin_token="0123456789abcdef",
        page_content=True,
        secret=b"32 random bytes",
        rules=Path("/etc/plimsoll"),
        keys=Path("/etc/keys"),
        redis="redis://:pw@redis:6379/0",
        mode=Mode.STRICT,
        ladder="agent",
        usage=Reported.ASKED,
        effective=64_000,
        on_full=OnFull.AGENT,
        workers=2,
        api_key="sk-1",
        max_body=10_000_000,
        max_memory=512 << 20,
        min_rate=1000.0,
        max_per_address=50,
        max_connections=100,
        tls_cert=Path("/etc/tls/tls.crt"),
        tls_key=Path("/etc/tls/tls.key"),
        upstream_ca=Path("/etc/ca.pem"),
        upstream_cert=Path("/etc/cert.pem"),
        upstream_key=Path("/etc/key.pem"),
        https_proxy="http://me:pw@proxy:3128",
        http_proxy="http://proxy:3128",
        no_proxy=("localhost", ".svc", "10.0.0.0/8"),
        connect_timeout=2.5,
        read_timeout=600.0,
        body_timeout=60.0,
        drain=0.0,
        probe_after=60.0,
        models_windows=False,
        log="json",
        caller_header="x-team",
        trusted_proxies=(ip_network("10.0.0.0/8"), ip_network("::1")),
        gen_ai_metrics=True,
        record=Path("/var/plimsoll"),
        record_content="redacted",
        record_size=10_000_000_000,
        summary_model="openai/gpt-5-mini",
        summary_upstream="http://localhost:8001/v1",
        summary_api_key="sk-2",
        summary_timeout=0.5,
        embeddings_model="text-embedding-3-small",
        embeddings_upstream="http://localhost:8002/v1",
        embeddings_api_key="sk-3",
        embeddings_timeout=1.0,
        embeddings_question_prefix="query:",
        embeddings_passage_prefix="passage:",
        counter_timeout=0.25,
        extra_calls_budget=5_000,
        extra_calls_keyless=False,
        llm_fallback_enabled=True,
        llm_allowed_fallback_models=models,
        context_total_token_limit=200_000,
        context_recent_history_token_budget=150_000,
        context_rag_token_budget=50_000,
    )
    assert settings.fallback_models == models


def test_the_way_out_may_be_written_small_and_its_password_is_not_shown() -> None:
    settings = read_settings({"https_proxy": "http://me:pw@proxy:1", "HTTPS_PROXY": "http://other:1", "no_proxy": "a"})
    assert (settings.https_proxy, settings.no_proxy) == ("http://me:pw@proxy:1", ("a",))
    assert "pw" not in repr(settings)


def test_allowed_models_are_not_used_unless_fallback_is_enabled() -> None:
    assert read_settings({"LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o"}).fallback_models == ()


def test_an_empty_variable_means_the_default() -> None:
    assert read_settings({"PLIMSOLL_PORT": "", "PLIMSOLL_REDIS": " "}) == read_settings({})


def test_a_flag_outranks_the_variable_and_an_absent_one_does_not() -> None:
    environ = {"PLIMSOLL_PORT": "1", "PLIMSOLL_MODE": "off"}
    settings = read_settings(environ, {"port": "2", "mode": None})
    assert (settings.port, settings.mode) == (2, Mode.OFF)


def test_every_wrong_value_is_named_with_what_is_allowed() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings({"PLIMSOLL_PORT": "http", "PLIMSOLL_MODE": "on", "PLIMSOLL_MAX_BODY": "lots"}, {"workers": "0"})
    assert str(caught.value).splitlines() == [
        "PLIMSOLL_PORT is 'http', must be a whole number from 0 to 65535",
        "PLIMSOLL_MODE is 'on', must be one of off, observe, fit, strict",
        "--workers is '0', must be a whole number from 1 to 1024",
        "PLIMSOLL_MAX_BODY is 'lots', must be a size such as 67108864, 10MB or 64MiB",
    ]


def test_no_secret_shows_in_a_repr_or_in_an_error() -> None:
    environ = {
        "PLIMSOLL_SECRET": "canary-secret",
        "PLIMSOLL_API_KEY": "canary-key",
        "PLIMSOLL_REDIS": "redis://u:canary-password@h",
    }
    assert "canary" not in repr(read_settings(environ))
    wrong = {
        "PLIMSOLL_API_KEY": "canary key",
        "PLIMSOLL_REDIS": "canary-password@h",
        "PLIMSOLL_UPSTREAM": "https://u:canary@h/v1",
    }
    with pytest.raises(ConfigError) as caught:
        read_settings(wrong)
    assert len(str(caught.value).splitlines()) == 3
    assert "canary" not in str(caught.value)


def test_the_address_of_a_service_that_kubernetes_sets_is_no_port() -> None:
    environ = {"PLIMSOLL_PORT": "tcp://10.96.0.1:8080", "PLIMSOLL_ADMIN_PORT": "tcp://10.96.0.1:9090"}
    assert read_settings(environ) == read_settings({})


def test_the_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        read_settings({}).port = 1  # type: ignore[misc]


def test_each_row_of_the_table_has_its_field_and_a_flag_of_the_same_name() -> None:
    assert [*(s.field for s in SETTINGS), "traces"] == [f.name for f in fields(Settings)]
    flags = {s.name: s.flag for s in SETTINGS}
    assert flags["PLIMSOLL_ADMIN_PORT"] == "--admin-port"
    assert flags["LLM_FALLBACK_ENABLED"] == "--llm-fallback-enabled"
    assert all(s.help for s in SETTINGS)
    private = {"PLIMSOLL_SECRET", "PLIMSOLL_REDIS", "PLIMSOLL_API_KEY", "PLIMSOLL_SUMMARY_API_KEY"}
    private |= {"PLIMSOLL_EMBEDDINGS_API_KEY", "HTTPS_PROXY", "HTTP_PROXY", "PLIMSOLL_ADMIN_TOKEN"}
    assert {s.name for s in SETTINGS if s.confidential} == private


def test_a_unknown_variables_variable_is_told_with_what_was_probably_meant() -> None:
    environ = {
        "PLIMSOLL_UPSTREM": "x",
        "PLIMSOLL_ZZZ": "x",
        "PLIMSOL_PORT": "9",
        "PLIMSOL_ZZZ": "x",
        "PLIMSOLL_PORT": "1",
        "PLIMSOLL_SERVICE_HOST": "10.0.0.1",
        "PLIMSOLL_PORT_8080_TCP_ADDR": "10.0.0.1",
        "PLIMSOLL_REDIS_PORT": "tcp://10.0.0.1:6379",
        "PATH": "/bin",
        "LLM_FALLBACK_ENABLE": "true",
        "LLM_MODEL": "of another program",
        "CONTEXT_TOTAL_TOKENS_LIMIT": "9000",
    }
    assert unknown_variables(environ) == (
        "CONTEXT_TOTAL_TOKENS_LIMIT is not a setting: did you mean CONTEXT_TOTAL_TOKEN_LIMIT?",
        "LLM_FALLBACK_ENABLE is not a setting: did you mean LLM_FALLBACK_ENABLED?",
        "PLIMSOLL_UPSTREM is not a setting: did you mean PLIMSOLL_UPSTREAM?",
        "PLIMSOLL_ZZZ is not a setting",
        "PLIMSOL_PORT is not a setting: did you mean PLIMSOLL_PORT?",
    )
