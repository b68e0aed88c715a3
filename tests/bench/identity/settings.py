"""The proxies of a recording: the settings, the rules and the kinds of requests of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.bench.identity.replies import SUMMARISER

ALL = (
    *("chat", "agent", "refused", "streams", "tools", "answers", "refused", "odd", "chat", "streams", "agent", "wires"),
    *("refused", "functions", "images", "tools", "answers", "packed", "controls", "refused", "paths", "plain", "long"),
)
CUTS = ("chat", "agent", "tools", "functions", "images", "long", "plain")
# No result may depend on how long a recording takes: learned limits are not probed, no extra call times out.
ALWAYS = {
    "PLIMSOLL_SECRET": "the-same-for-every-recording-of-the-set",
    "PLIMSOLL_MAX_MEMORY": "512MiB",
    "PLIMSOLL_PROBE_AFTER": "9000h",
    "PLIMSOLL_SUMMARY_TIMEOUT": "60",
    "PLIMSOLL_EMBEDDINGS_TIMEOUT": "60",
    "PLIMSOLL_LOG": "json",
}
FALLBACK = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o,gpt-4.1,gpt-5-mini,gemini-1.5-pro"}
WINDOWS = """
[[window]]
model = "gpt-4*"
tokens = 3000
max_output = 1000

[[window]]
model = "gpt-5*"
tokens = 4000
max_input = 2500
max_output = 2000

[[window]]
model = "*harbour*"
tokens = 2200

[[window]]
model = "*"
tokens = 5000
"""
NARROW = "".join(
    f'[[window]]\nmodel = "{model}"\ntokens = 3000\n\n'
    for model in ("gpt-4", "gpt-3.5*", "*harbour*", "*mistral*", "*llama*", "claude*", "gemma*", "qwen*", "o3*")
)
FORWARD = """
on_unfit = "forward"
unknown = "assume"
default_reserve = 700
floor = 200

[[step]]
name = "trim_tool_results"
cap_tokens = 300

[[step]]
name = "clamp_output"

[[step]]
name = "prune_history"
low = 0.5

[[use]]
model = "claude*"
ladder = "agent"

[[lorebook]]
model = "mistral*"
name = "harbour"
"""
BOOK = """
# crane, cranes
The crane of berth 7 was built in Busan in 1987 and lifts 40 tonnes.

# pump
The pump is Miriam Kovac's, whatever the manifest says.

# Trieste, Rotterdam
Invoices of Trieste and Rotterdam go to Olga Petrova.
"""
WORLD = {
    "entries": {
        "0": {"key": ["radar"], "content": "The radar was sold in spring.", "order": 5},
        "1": {"key": [], "content": "All sums are in EUR.", "constant": True},
        "2": {
            "key": ["anchor"],
            "keysecondary": ["Halifax"],
            "selective": True,
            "selectiveLogic": 0,
            "content": "Lost.",
        },
        "3": {"key": ["winch"], "content": "Never said.", "disable": True},
    }
}
LORE = {"lorebooks/harbour.md": BOOK, "lorebooks/world.json": json.dumps(WORLD)}


@dataclass(frozen=True, slots=True)
class Setting:
    """One proxy: its environment, its rules folder (file name to text) and its kinds of requests, used in rotation.
    `share` is its part of all requests. Without `capped`, no request has the header x-plimsoll-window."""

    name: str
    share: int
    kinds: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    capped: bool = True


RAG = {"PLIMSOLL_LADDER": "rag", "CONTEXT_RECENT_HISTORY_TOKEN_BUDGET": "1500", "CONTEXT_RAG_TOKEN_BUDGET": "900"}
OPERATOR = {
    "PLIMSOLL_API_KEY": "sk-operator",
    "PLIMSOLL_SUMMARY_MODEL": SUMMARISER,
    "PLIMSOLL_SUMMARY_API_KEY": "sk-summary",
    "PLIMSOLL_EXTRA_CALLS_BUDGET": "60000",
    "PLIMSOLL_EXTRA_CALLS_KEYLESS": "false",
}
SETTINGS = (
    Setting("default", 40, ALL, rules=LORE),
    Setting("observe", 5, ("chat", "agent", "refused", "streams", "controls", "tools"), {"PLIMSOLL_MODE": "observe"}),
    Setting("strict", 6, ("odd", "packed", "chat", "refused", "answers", "long"), {"PLIMSOLL_MODE": "strict"}),
    Setting("off", 2, ("chat", "odd", "refused", "controls"), {"PLIMSOLL_MODE": "off"}),
    Setting("agent", 5, CUTS, {"PLIMSOLL_LADDER": "agent"}),
    Setting("chat", 5, CUTS, {"PLIMSOLL_LADDER": "chat"}),
    Setting("rag", 5, ("chat", "controls", "chat", "agent", "plain"), RAG, LORE),
    Setting("economy", 4, CUTS, {"PLIMSOLL_LADDER": "economy", **FALLBACK}, {"windows.toml": NARROW}, capped=False),
    Setting("lossless", 4, CUTS, {"PLIMSOLL_LADDER": "lossless", **FALLBACK}, {"windows.toml": NARROW}, capped=False),
    Setting("switch", 4, ("chat", "agent", "refused"), FALLBACK, {"windows.toml": NARROW}, capped=False),
    Setting("windows", 6, ALL, {"CONTEXT_TOTAL_TOKEN_LIMIT": "4500"}, {"windows.toml": WINDOWS}, capped=False),
    Setting("forward", 3, ALL, {}, {"ladder.toml": FORWARD, **LORE}),
    Setting("summaries", 4, ("chat", "agent", "plain", "refused"), {"PLIMSOLL_SUMMARY_MODEL": SUMMARISER}),
    Setting("operator", 3, ("chat", "plain", "answers", "paths"), OPERATOR),
    Setting("embeddings", 4, ("chat", "plain", "chat", "agent"), {"PLIMSOLL_EMBEDDINGS_MODEL": "embedder"}),
    Setting("probing", 4, ("refused", "refused", "chat"), {"PLIMSOLL_PROBE_AFTER": "0.001"}),
)
RECORDED = Setting("recorded", 45, ("histories", "runs", "cases", "bodies"))  # only with a folder of data
