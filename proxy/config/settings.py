"""The settings: environment variables and flags, parsed once into one immutable value.

A new setting is one row of `SETTINGS` and one field of `Settings`; the command line generates its flags from the table.
The module opens no file and no socket.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proxy.config import values
from proxy.config.otel import TraceSettings, read_traces
from proxy.config.values import Network, Parser, optional, whole
from proxy.errors import ConfigError
from proxy.model.plan import Mode
from proxy.model.terms import USUAL, OnFull, Reported, Terms

PREFIX = "PLIMSOLL_"
PREFIXES = (PREFIX, "LLM_", "CONTEXT_")
# Kubernetes sets variables with the addresses of its Services in every container: with a Service named plimsoll,
# PLIMSOLL_PORT is tcp://10.0.0.1:80. Such a value is ignored.
SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://\S+:\d+")
EITHER_CASE = frozenset(("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"))  # lower case is the older convention, and wins
ADMIN_TOKEN = "PLIMSOLL_ADMIN_TOKEN"
ADMIN_URL = "PLIMSOLL_ADMIN_URL"  # of a running proxy, for the commands that ask it; not for `serve`
SERVICE_NAMES = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_\d+_(TCP|UDP|SCTP).*)?$")

USUAL_UPSTREAM = "https://api.openai.com/v1"
META, REDACTED, BODIES = "meta", "redacted", "bodies"  # what a recording has of a request's body

port = whole(0, 65535)
tokens = optional(values.tokens)


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed settings; `SETTINGS` describes them. Sizes are in bytes, times in seconds, budgets in tokens.

    Confidential values (secrets, keys, URLs with passwords) are not part of the repr.
    """

    upstream: str
    host: str
    port: int
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    admin_host: str
    admin_port: int | None
    admin_names: tuple[str, ...]
    admin_token: str | None = field(repr=False)
    page_content: bool
    secret: bytes | None = field(repr=False)
    rules: Path | None
    keys: Path | None
    redis: str | None = field(repr=False)
    mode: Mode
    ladder: str
    usage: Reported
    effective: int | None
    on_full: OnFull
    workers: int
    api_key: str | None = field(repr=False)
    max_body: int
    max_memory: int | None
    min_rate: float
    max_connections: int
    max_per_address: int
    tls_cert: Path | None
    tls_key: Path | None
    upstream_ca: Path | None
    upstream_cert: Path | None
    upstream_key: Path | None
    https_proxy: str | None = field(repr=False)
    http_proxy: str | None = field(repr=False)
    no_proxy: tuple[str, ...]
    connect_timeout: float
    read_timeout: float
    body_timeout: float
    drain: float
    probe_after: float
    models_windows: bool
    log: str
    caller_header: str | None
    trusted_proxies: tuple[Network, ...]
    gen_ai_metrics: bool
    record: Path | None
    record_content: str
    record_size: int
    summary_model: str
    summary_upstream: str | None
    summary_api_key: str | None = field(repr=False)
    summary_timeout: float
    embeddings_model: str
    embeddings_upstream: str | None
    embeddings_api_key: str | None = field(repr=False)
    embeddings_timeout: float
    embeddings_question_prefix: str
    embeddings_passage_prefix: str
    counter_timeout: float
    extra_calls_budget: int
    extra_calls_keyless: bool
    llm_fallback_enabled: bool
    llm_allowed_fallback_models: tuple[str, ...]
    context_total_token_limit: int | None
    context_recent_history_token_budget: int | None
    context_rag_token_budget: int | None
    traces: TraceSettings | None = None  # of `OTEL_*` variables; None: off

    @property
    def fallback_models(self) -> tuple[str, ...]:
        """The models that a request may be switched to, preferred first; empty unless enabled (seed 003)."""
        return self.llm_allowed_fallback_models if self.llm_fallback_enabled else ()

    @property
    def terms(self) -> Terms:
        """What holds for requests whose headers say nothing else."""
        terms = Terms(self.usage, self.effective, self.on_full)
        return USUAL if terms == USUAL else terms


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `default` is the text that an unset or empty variable stands for.

    `parse` raises `ValueError` with the problem and the allowed values. A `confidential` value is never printed.
    """

    name: str
    parse: Parser
    default: str
    help: str
    confidential: bool = False

    @property
    def field(self) -> str:
        """The name of its field in `Settings`."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def flag(self) -> str:
        """Its command-line flag: `--admin-port`."""
        return "--" + self.field.replace("_", "-")


SETTINGS = (
    Setting("PLIMSOLL_UPSTREAM", values.upstream, USUAL_UPSTREAM, "base URL of the provider, including /v1"),
    Setting("PLIMSOLL_HOST", values.host, "127.0.0.1", "address to listen on"),
    Setting("PLIMSOLL_PORT", port, "8080", "port to listen on; 0 for any free port"),
    Setting(
        "PLIMSOLL_HOSTS",
        values.host_names,
        "",
        "names of this proxy besides addresses and localhost; if set, no other name is served, as on loopback",
    ),
    Setting(
        "PLIMSOLL_ORIGINS",
        values.origins,
        "",
        "origins of web pages that may do what other clients may: https://chat.example.com",
    ),
    Setting("PLIMSOLL_ADMIN_HOST", values.host, "", "address of the admin port; empty: PLIMSOLL_HOST"),
    Setting(
        "PLIMSOLL_ADMIN_PORT",
        optional(port),
        "",
        "separate port for the page, /metrics, /healthz, /readyz, /inspect, /learned, /forget",
    ),
    Setting(
        "PLIMSOLL_ADMIN_NAMES",
        values.host_names,
        "",
        "further names under which browsers and scripts reach the proxy's own paths, besides PLIMSOLL_HOSTS",
    ),
    Setting(
        "PLIMSOLL_ADMIN_TOKEN",
        optional(values.token),
        "",
        "token for the page's data, /inspect, /learned and /forget; beyond loopback there is none of these without it",
        True,
    ),
    Setting(
        "PLIMSOLL_PAGE_CONTENT",
        values.boolean,
        "false",
        "whether the page shows texts of messages: in memory only, for 15 minutes; beyond loopback with a token only",
    ),
    Setting(
        "PLIMSOLL_SECRET", optional(values.secret), "", "key for hashes and encryption; the same on all replicas", True
    ),
    Setting("PLIMSOLL_RULES", optional(Path), "", "folder with rules that override the built-in ones"),
    Setting(
        "PLIMSOLL_KEYS",
        optional(Path),
        "",
        "folder with a file for each key, named like its setting, instead of variables",
    ),
    Setting("PLIMSOLL_REDIS", optional(values.cache), "", "URL of a Redis; empty: caches are in process only", True),
    Setting("PLIMSOLL_MODE", values.mode, "fit", "off, observe, fit or strict"),
    Setting(
        "PLIMSOLL_LADDER", values.ladder_name, "default", "ladder of requests without a rule or header that names one"
    ),
    Setting(
        "PLIMSOLL_USAGE",
        values.one_of(Reported),
        "sent",
        "what answers to requests that were cut report as tokens of the prompt: sent or asked",
    ),
    Setting("PLIMSOLL_EFFECTIVE", tokens, "", "prompt to which longer ones are cut, where cuts reach it; empty: none"),
    Setting(
        "PLIMSOLL_ON_FULL",
        values.one_of(OnFull),
        "fit",
        "who makes fit what is past its window: fit (the proxy) or agent (the client gets its provider's refusal)",
    ),
    Setting("PLIMSOLL_WORKERS", whole(1, 1024), "1", "number of worker processes"),
    Setting("PLIMSOLL_API_KEY", optional(values.key), "", "key sent upstream when the client sends none", True),
    Setting("PLIMSOLL_MAX_BODY", values.size, "64MiB", "largest request body on fitted endpoints"),
    Setting(
        "PLIMSOLL_MAX_MEMORY",
        optional(values.size),
        "",
        "memory for buffered bodies, 4 times the size of each; empty: half of the container's memory above 160MiB",
    ),
    Setting(
        "PLIMSOLL_MIN_RATE", values.rate, "240", "minimum bytes per second that a client must send or read; 0: none"
    ),
    Setting("PLIMSOLL_MAX_CONNECTIONS", whole(1), "4096", "maximum connections of each process to one upstream"),
    Setting(
        "PLIMSOLL_MAX_PER_ADDRESS",
        whole(0),
        "0",
        "maximum connections of one client address to each process; 0: none, as it must be behind an ingress",
    ),
    Setting(
        "PLIMSOLL_TLS_CERT",
        optional(Path),
        "",
        "our own certificate chain (PEM): both ports then speak TLS, and follow the file",
    ),
    Setting("PLIMSOLL_TLS_KEY", optional(Path), "", "its private key (PEM), if in a separate file"),
    Setting("PLIMSOLL_UPSTREAM_CA", optional(Path), "", "file of additional trusted certificate authorities (PEM)"),
    Setting("PLIMSOLL_UPSTREAM_CERT", optional(Path), "", "client certificate (PEM) for upstreams that request one"),
    Setting(
        "PLIMSOLL_UPSTREAM_KEY", optional(Path), "", "private key of that certificate (PEM), if in a separate file"
    ),
    Setting(
        "HTTPS_PROXY", optional(str), "", "forward proxy for https upstreams: http://[user:password@]host:port", True
    ),
    Setting("HTTP_PROXY", optional(str), "", "forward proxy for http upstreams", True),
    Setting("NO_PROXY", values.names, "", "domains and addresses without a forward proxy, comma-separated; * for all"),
    Setting("PLIMSOLL_CONNECT_TIMEOUT", values.timeout, "5", "seconds to connect to the upstream"),
    Setting("PLIMSOLL_READ_TIMEOUT", values.timeout, "600", "seconds to wait for the upstream's next bytes"),
    Setting("PLIMSOLL_BODY_TIMEOUT", values.timeout, "60", "seconds to wait for the client's next bytes"),
    Setting("PLIMSOLL_DRAIN", values.duration, "30", "seconds that requests in flight may take to finish at shutdown"),
    Setting("PLIMSOLL_PROBE_AFTER", values.timeout, "60", "seconds until one request probes a learned limit"),
    Setting("PLIMSOLL_MODELS_WINDOWS", values.boolean, "false", "whether GET /v1/models shows the enforced windows"),
    Setting("PLIMSOLL_LOG", values.choice("auto", "json", "text"), "auto", "auto (text on a terminal), json or text"),
    Setting(
        "PLIMSOLL_CALLER_HEADER",
        optional(values.header_name),
        "",
        "request header whose value is the metrics' label caller, if callers.toml has it; empty: no label",
    ),
    Setting(
        "PLIMSOLL_TRUSTED_PROXIES",
        values.networks,
        "",
        "addresses and networks of gateways whose PLIMSOLL_CALLER_HEADER names callers for rules of callers.toml",
    ),
    Setting(
        "PLIMSOLL_GEN_AI_METRICS", values.boolean, "false", "whether metrics have OpenTelemetry's gen_ai names, too"
    ),
    Setting("PLIMSOLL_RECORD", optional(Path), "", "folder to record requests in, for plimsoll replay; empty: none"),
    Setting(
        "PLIMSOLL_RECORD_CONTENT",
        values.choice(META, REDACTED, BODIES),
        META,
        "what is recorded of a body: meta (nothing), redacted (other words of as many tokens) or bodies",
    ),
    Setting("PLIMSOLL_RECORD_SIZE", values.size, "1GiB", "recordings that are kept; the oldest are removed"),
    Setting(
        "PLIMSOLL_SUMMARY_MODEL", values.model, "", "model that summarises old history at a load of 0.85; empty: none"
    ),
    Setting("PLIMSOLL_SUMMARY_UPSTREAM", optional(values.upstream), "", "base URL for summaries; empty: the upstream"),
    Setting("PLIMSOLL_SUMMARY_API_KEY", optional(values.key), "", "key for PLIMSOLL_SUMMARY_UPSTREAM", True),
    Setting("PLIMSOLL_SUMMARY_TIMEOUT", values.timeout, "20", "seconds to wait for a summary"),
    Setting(
        "PLIMSOLL_EMBEDDINGS_MODEL", values.model, "", "model whose embeddings help to rank old turns; empty: none"
    ),
    Setting(
        "PLIMSOLL_EMBEDDINGS_UPSTREAM", optional(values.upstream), "", "base URL for embeddings; empty: the upstream"
    ),
    Setting("PLIMSOLL_EMBEDDINGS_API_KEY", optional(values.key), "", "key for PLIMSOLL_EMBEDDINGS_UPSTREAM", True),
    Setting("PLIMSOLL_EMBEDDINGS_TIMEOUT", values.timeout, "200ms", "seconds to wait for embeddings"),
    Setting(
        "PLIMSOLL_EMBEDDINGS_QUESTION_PREFIX",
        values.line,
        "",
        "what the embeddings model expects before a question, such as query:",
    ),
    Setting(
        "PLIMSOLL_EMBEDDINGS_PASSAGE_PREFIX",
        values.line,
        "",
        "what the embeddings model expects before a text that may answer it, such as passage:",
    ),
    Setting(
        "PLIMSOLL_COUNTER_TIMEOUT",
        values.duration,
        "0.3",
        "seconds to wait for the upstream's own count of a prompt near its window; 0: never asked",
    ),
    Setting(
        "PLIMSOLL_EXTRA_CALLS_BUDGET",
        values.budget,
        "20_000_000",
        "tokens per 24 hours of summaries and embeddings on the operator's keys",
    ),
    Setting(
        "PLIMSOLL_EXTRA_CALLS_KEYLESS",
        values.boolean,
        "true",
        "whether requests without a key may cause these calls",
    ),
    Setting("LLM_FALLBACK_ENABLED", values.boolean, "false", "whether a request may be switched to an allowed model"),
    Setting("LLM_ALLOWED_FALLBACK_MODELS", values.names, "", "the allowed models, preferred first, comma-separated"),
    Setting("CONTEXT_TOTAL_TOKEN_LIMIT", tokens, "", "maximum tokens of prompt and reply, whatever the model's window"),
    Setting("CONTEXT_RECENT_HISTORY_TOKEN_BUDGET", tokens, "", "maximum tokens of the recent history"),
    Setting("CONTEXT_RAG_TOKEN_BUDGET", tokens, "", "maximum tokens of recalled passages"),
)


def read_settings(environ: Mapping[str, str], flags: Mapping[str, str | None] = MappingProxyType({})) -> Settings:
    """The settings of an environment. `flags` (by field name; None: not given) override its variables.

    Raises `ConfigError` with one line per invalid setting: its name, the problem and the allowed values.
    """
    parsed: dict[str, Any] = {}
    problems: list[str] = []
    for setting in SETTINGS:
        flag = flags.get(setting.field)
        text = _text_of(setting, environ) if flag is None else flag.strip()
        try:
            parsed[setting.field] = setting.parse(text or setting.default)
        except ValueError as error:
            problems.append(f"{setting.name if flag is None else setting.flag} {error}")
    traces, wrong = read_traces(environ)
    if problems or wrong:
        raise ConfigError("\n".join([*problems, *wrong]))
    return Settings(**parsed, traces=traces)


def _text_of(setting: Setting, environ: Mapping[str, str]) -> str:
    text = environ.get(setting.name, "").strip()
    if setting.name in EITHER_CASE:
        text = environ.get(setting.name.lower(), "").strip() or text
    return "" if setting.name.endswith("_PORT") and SERVICE_LINK.fullmatch(text) else text


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """One line per variable with our prefix that is not a setting, with the setting that was probably meant. Of those
    with a prefix of other settings, which other programs may use, too, or with one that is nearly ours, only what is
    nearly a setting."""
    known = [*(setting.name for setting in SETTINGS), ADMIN_URL]
    unknown = (n for n in environ if n not in known and _may_be_ours(n))
    found = ((name, difflib.get_close_matches(name, known, n=1, cutoff=0.85)) for name in sorted(unknown))
    return tuple(_line(name, similar) for name, similar in found if similar or name.startswith(PREFIX))


def _may_be_ours(name: str) -> bool:
    """Whether a variable has one of our prefixes, or one that is nearly ours, and none of Kubernetes' endings."""
    if name.startswith(PREFIXES):
        return not SERVICE_NAMES.search(name)
    return bool(difflib.get_close_matches(name.partition("_")[0] + "_", (PREFIX,), cutoff=0.85))


def _line(name: str, similar: list[str]) -> str:
    return f"{name} is not a setting" + (f": did you mean {similar[0]}?" if similar else "")
