"""The settings: the only reader of the environment, which it turns once into one value; it opens no file and no socket.

Adding a setting is one row of `SETTINGS` and one field of `Settings`: the command line makes its flags from the table.
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
from proxy.config.values import Parser, optional, whole
from proxy.errors import ConfigError
from proxy.model.plan import Mode

PREFIX = "PLIMSOLL_"
# Kubernetes puts its Services' addresses into every container: with a Service named plimsoll, PLIMSOLL_PORT is
# tcp://10.0.0.1:80. That is no setting of the user's.
SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://\S+:\d+")
EITHER_CASE = frozenset(("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"))  # other programs write them small, too
ADMIN_URL = "PLIMSOLL_ADMIN_URL"  # where `plimsoll models` and `forget` ask; `serve` has no use for it
SERVICE_NAMES = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_\d+_(TCP|UDP|SCTP).*)?$")

port = whole(0, 65535)
tokens = optional(whole(1))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user set, each value of its own type. Sizes are bytes, timeouts seconds, limits and budgets tokens.

    What must not be shown (the secret, the key, the Redis URL with its password) is left out of its repr.
    """

    upstream: str
    host: str
    port: int
    admin_host: str
    admin_port: int | None
    secret: bytes | None = field(repr=False)
    rules: Path | None
    redis: str | None = field(repr=False)
    mode: Mode
    ladder: str
    workers: int
    api_key: str | None = field(repr=False)
    max_body: int
    max_memory: int | None
    min_rate: float
    max_connections: int
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
    log: str
    summary_model: str
    summary_upstream: str | None
    summary_api_key: str | None = field(repr=False)
    summary_timeout: float
    embeddings_model: str
    embeddings_upstream: str | None
    embeddings_api_key: str | None = field(repr=False)
    embeddings_timeout: float
    extra_calls_budget: int
    extra_calls_keyless: bool
    llm_fallback_enabled: bool
    llm_allowed_fallback_models: tuple[str, ...]
    context_total_token_limit: int | None
    context_recent_history_token_budget: int | None
    context_rag_token_budget: int | None

    @property
    def fallback_models(self) -> tuple[str, ...]:
        """The models that a request may be moved to, most wanted first: none unless the user enabled it (seed 003)."""
        return self.llm_allowed_fallback_models if self.llm_fallback_enabled else ()


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `default` is what an unset or empty variable means, as the user would have written it.

    `parse` raises ValueError with what is wrong and what is allowed; a `private` value is never shown.
    """

    name: str
    parse: Parser
    default: str
    help: str
    private: bool = False

    @property
    def field(self) -> str:
        """The name of the field of `Settings` that holds it."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def flag(self) -> str:
        """The command line's name for it: `--admin-port`."""
        return "--" + self.field.replace("_", "-")


SETTINGS = (
    Setting("PLIMSOLL_UPSTREAM", values.upstream, "https://api.openai.com/v1", "URL of the provider, with its /v1"),
    Setting("PLIMSOLL_HOST", values.host, "127.0.0.1", "address to listen on"),
    Setting("PLIMSOLL_PORT", port, "8080", "port to listen on; 0 takes a free one"),
    Setting("PLIMSOLL_ADMIN_HOST", values.host, "", "address of the admin port; empty: PLIMSOLL_HOST's"),
    Setting(
        "PLIMSOLL_ADMIN_PORT",
        optional(port),
        "",
        "own port for /metrics, /healthz, /readyz, /inspect, /learned, /forget",
    ),
    Setting("PLIMSOLL_SECRET", optional(values.secret), "", "key for hashes and seals, one for all replicas", True),
    Setting("PLIMSOLL_RULES", optional(Path), "", "folder that is laid over the built-in rules"),
    Setting("PLIMSOLL_REDIS", optional(values.cache), "", "URL of a Redis; empty: remember in process only", True),
    Setting("PLIMSOLL_MODE", values.mode, "fit", "off, observe, fit or strict"),
    Setting("PLIMSOLL_LADDER", values.word, "default", "ladder of requests that no rule and no header gives another"),
    Setting("PLIMSOLL_WORKERS", whole(1, 1024), "1", "processes that serve"),
    Setting("PLIMSOLL_API_KEY", optional(values.key), "", "key sent upstream when the client sends none", True),
    Setting("PLIMSOLL_MAX_BODY", values.size, "64MiB", "largest request body on the endpoints that are fitted"),
    Setting(
        "PLIMSOLL_MAX_MEMORY",
        optional(values.size),
        "",
        "memory for buffered bodies, 4 times their size each; empty: half of what the container has beyond 160MiB",
    ),
    Setting("PLIMSOLL_MIN_RATE", values.rate, "240", "bytes a second that clients must send or read at least; 0: none"),
    Setting("PLIMSOLL_MAX_CONNECTIONS", whole(1), "4096", "connections of each process to one upstream in use at once"),
    Setting("PLIMSOLL_UPSTREAM_CA", optional(Path), "", "file of authorities (PEM) that are trusted beside the usual"),
    Setting(
        "PLIMSOLL_UPSTREAM_CERT", optional(Path), "", "our certificate (PEM), shown to an upstream that asks for it"
    ),
    Setting("PLIMSOLL_UPSTREAM_KEY", optional(Path), "", "that certificate's key (PEM), where its file has none"),
    Setting(
        "HTTPS_PROXY", optional(str), "", "forward proxy for https upstreams: http://[user:password@]host:port", True
    ),
    Setting("HTTP_PROXY", optional(str), "", "the same for http upstreams", True),
    Setting("NO_PROXY", values.names, "", "domains and addresses that are asked straight, between commas; * for all"),
    Setting("PLIMSOLL_CONNECT_TIMEOUT", values.timeout, "5", "seconds to connect to the upstream"),
    Setting("PLIMSOLL_READ_TIMEOUT", values.timeout, "600", "seconds to wait for the upstream's next bytes"),
    Setting("PLIMSOLL_BODY_TIMEOUT", values.timeout, "60", "seconds to wait for the client's next bytes"),
    Setting("PLIMSOLL_DRAIN", values.patience, "30", "seconds that running requests get to end at a stop"),
    Setting(
        "PLIMSOLL_PROBE_AFTER", values.timeout, "60", "seconds that a learned limit holds before one request tries it"
    ),
    Setting("PLIMSOLL_LOG", values.choice("auto", "json", "text"), "auto", "auto (text on a terminal), json or text"),
    Setting(
        "PLIMSOLL_SUMMARY_MODEL", values.model, "", "model that sums up old history from a load of 0.85 on; empty: none"
    ),
    Setting("PLIMSOLL_SUMMARY_UPSTREAM", optional(values.upstream), "", "URL of that model; empty: the upstream's"),
    Setting("PLIMSOLL_SUMMARY_API_KEY", optional(values.key), "", "key sent to the summary's own upstream", True),
    Setting("PLIMSOLL_SUMMARY_TIMEOUT", values.timeout, "20", "seconds that a summary is waited for"),
    Setting("PLIMSOLL_EMBEDDINGS_MODEL", values.model, "", "model whose embeddings help rank old turns; empty: none"),
    Setting("PLIMSOLL_EMBEDDINGS_UPSTREAM", optional(values.upstream), "", "URL of that model; empty: the upstream's"),
    Setting("PLIMSOLL_EMBEDDINGS_API_KEY", optional(values.key), "", "key sent to the embeddings' own upstream", True),
    Setting("PLIMSOLL_EMBEDDINGS_TIMEOUT", values.timeout, "2", "seconds that embeddings are waited for"),
    Setting(
        "PLIMSOLL_EXTRA_CALLS_BUDGET", whole(0), "20_000_000", "tokens in 24 hours of such calls on the operator's keys"
    ),
    Setting(
        "PLIMSOLL_EXTRA_CALLS_KEYLESS", values.boolean, "true", "whether clients without a key may cause such calls"
    ),
    Setting("LLM_FALLBACK_ENABLED", values.boolean, "false", "whether a request may be moved to an allowed model"),
    Setting("LLM_ALLOWED_FALLBACK_MODELS", values.names, "", "those models, most wanted first, between commas"),
    Setting("CONTEXT_TOTAL_TOKEN_LIMIT", tokens, "", "tokens that prompt and reply may take, whatever the model holds"),
    Setting("CONTEXT_RECENT_HISTORY_TOKEN_BUDGET", tokens, "", "tokens that the recent history may take"),
    Setting("CONTEXT_RAG_TOKEN_BUDGET", tokens, "", "tokens that recalled passages may take"),
)


def read_settings(environ: Mapping[str, str], flags: Mapping[str, str | None] = MappingProxyType({})) -> Settings:
    """The settings of an environment, with the command line's flags (by field name; None: not given) over it.

    Raises ConfigError that names every wrong setting, what is wrong with it and what is allowed, one a line.
    """
    parsed: dict[str, Any] = {}
    problems: list[str] = []
    for setting in SETTINGS:
        flag = flags.get(setting.field)
        text = _given(setting, environ) if flag is None else flag.strip()
        try:
            parsed[setting.field] = setting.parse(text or setting.default)
        except ValueError as error:
            problems.append(f"{setting.name if flag is None else setting.flag} {error}")
    if problems:
        raise ConfigError("\n".join(problems))
    return Settings(**parsed)


def _given(setting: Setting, environ: Mapping[str, str]) -> str:
    text = environ.get(setting.name, "").strip()
    if setting.name in EITHER_CASE:
        text = environ.get(setting.name.lower(), "").strip() or text
    return "" if setting.name.endswith("_PORT") and SERVICE_LINK.fullmatch(text) else text


def misspelt(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each variable that bears our prefix and is no setting, with the setting that was probably meant."""
    known = [*(setting.name for setting in SETTINGS), ADMIN_URL]
    strange = (n for n in environ if n.startswith(PREFIX) and n not in known and not SERVICE_NAMES.search(n))
    return tuple(_line(name, difflib.get_close_matches(name, known, n=1, cutoff=0.85)) for name in sorted(strange))


def _line(name: str, close: list[str]) -> str:
    return f"{name} is no setting" + (f": did you mean {close[0]}?" if close else "")
