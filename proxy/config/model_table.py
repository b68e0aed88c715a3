"""litellm's model table, read as the file it is: what each model holds and can do; litellm itself is never imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high, multimode
from typing import Any

import msgspec

from proxy.config import model_names
from proxy.errors import ConfigError

FILE = "model_prices_and_context_window_backup.json"
# Modes in which a model answers text with text. `sample_spec`, the table's own documentation, has none of them.
MODES = frozenset({"chat", "completion", "responses"})
# The table's fields that say what a model can do, and the names that `Prompt.needs` has for it.
CAN = (
    ("supports_function_calling", "tools"),
    ("supports_vision", "vision"),
    ("supports_response_schema", "schema"),
    ("supports_audio_input", "audio"),
    ("supports_pdf_input", "files"),
    ("supports_video_input", "video"),
    ("supports_reasoning", "reasoning"),
    ("supports_web_search", "web_search"),
    ("supports_prompt_caching", "prompt_caching"),
)
WORDS = frozenset(word for _, word in CAN)
# Folders of the table that are makers' own endpoints: who asks one sends the bare name. All others are hosts.
MAKERS = frozenset(
    "anthropic cohere dashscope deepseek gemini minimax mistral moonshot openai perplexity xai zai".split()
)


class Row(msgspec.Struct, gc=False):
    """The fields of the table's rows that we read; of any type, so that one odd row spoils no other.

    `max_tokens` is not read: in most rows it is the cap on the reply, in some the window.
    """

    mode: Any = None
    max_input_tokens: Any = None
    max_output_tokens: Any = None
    supports_function_calling: Any = None
    supports_vision: Any = None
    supports_response_schema: Any = None
    supports_audio_input: Any = None
    supports_pdf_input: Any = None
    supports_video_input: Any = None
    supports_reasoning: Any = None
    supports_web_search: Any = None
    supports_prompt_caching: Any = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What the table says of a model, in tokens; `can` is None where it says nothing of what the model can do."""

    name: str
    tokens: int
    max_input: int | None = None
    max_output: int | None = None
    can: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of models that hold text, by name; and under each bare name and stem the names that share it.

    `beside` holds the (input, output) figures of rows whose window is their sum (see rules/windows.toml).
    """

    rows: Mapping[str, Row]
    sharers: Mapping[str, Sequence[str]]
    beside: Collection[tuple[int, int]] = ()

    def exact(self, name: str) -> Entry | None:
        """What the row of this very name says."""
        return self._entry(name) if name in self.rows else None

    def shared(self, form: str) -> Entry | None:
        """What the rows say that share a bare name or a stem. A row without a version outranks one with, its maker's
        row those of hosts; those of one rank vote."""
        found = self.sharers.get(form)
        if not found:
            return None
        ranks = [(model_names.bare(name) != form, _distance(name)) for name in found]
        return _agreed([self._entry(name) for name, rank in zip(found, ranks, strict=True) if rank == min(ranks)])

    def _entry(self, name: str) -> Entry:
        row = self.rows[name]
        held, output = row.max_input_tokens, row.max_output_tokens
        output = output if type(output) is int and output > 0 else None
        tokens, max_input = (held + output, held) if (held, output) in self.beside else (held, None)
        # A cap as large as the window bounds nothing.
        return Entry(name, tokens, max_input, output if output and output < tokens else None, _can(row))


def _distance(name: str) -> int:
    """How far from its maker a row is: 0 under the bare name, 1 at the maker's own endpoint, 2 at a host."""
    folder, _, _ = name.rpartition("/")
    return 0 if name == model_names.bare(name) else 1 if folder in MAKERS else 2


def _can(row: Row) -> frozenset[str] | None:
    said = [(word, value) for field, word in CAN if (value := getattr(row, field)) is not None]
    return frozenset(word for word, value in said if value is True) if said else None


def table_file() -> Path:
    """Where litellm's wheel keeps the table. Raises ConfigError where litellm is not installed."""
    spec = importlib.util.find_spec("litellm")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / FILE).is_file():
            return path
    raise ConfigError(f"litellm's model table ({FILE}) is not there: is litellm installed?")


def read_table(raw: bytes, beside: Collection[tuple[int, int]] = ()) -> Table:
    """The table of a file's bytes, some 4,000 rows. Raises ConfigError where they are no such table."""
    try:
        rows = msgspec.json.decode(raw, type=dict[str, Row])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{FILE}: {error}") from None
    kept = {name.lower(): row for name, row in rows.items() if row.mode in MODES and _holds(row.max_input_tokens)}
    sharers: dict[str, list[str]] = {}
    for name in kept:
        bare = model_names.bare(name)
        sharers.setdefault(bare, []).append(name)
        if (stem := model_names.stem(bare)) != bare and model_names.telling(stem):
            sharers.setdefault(stem, []).append(name)
    return Table(kept, sharers, frozenset(beside))


def _holds(figure: Any) -> bool:
    return type(figure) is int and figure > 0


def _agreed(entries: list[Entry]) -> Entry:
    """What most of a model's hosts say. Which of them the request goes to is not known, so the reply's cap is the most
    generous of theirs and the model can what it can at any: a cut that was not needed is worse than a refusal."""
    tokens = median_high(multimode(entry.tokens for entry in entries))
    alike = [entry for entry in entries if entry.tokens == tokens]
    can = [entry.can for entry in alike if entry.can is not None]
    return Entry(
        name=alike[0].name,
        tokens=tokens,
        max_input=_loosest([entry.max_input for entry in alike]),
        max_output=_loosest([entry.max_output for entry in alike]),
        can=frozenset().union(*can) if can else None,
    )


def _loosest(bounds: list[int | None]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) else None
