"""litellm's model table: the window, the capabilities and the list prices of each model.

The table is read as a file. litellm is never imported: that costs seconds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median_high, multimode
from typing import Any

import msgspec

from proxy.config import model_names
from proxy.config.price_table import MODES as PRICED
from proxy.config.price_table import PriceTable, distance
from proxy.errors import ConfigError
from proxy.tokens import litellm_data

FILE = "model_prices_and_context_window_backup.json"
# Modes with text input and text output. `sample_spec`, the table's documentation row, has none of them.
MODES = frozenset({"chat", "completion", "responses"})
# The table's capability fields, and the names of the same capabilities in `Prompt.needs`.
CAPABILITIES = (
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
CAPABILITY_NAMES = frozenset(name for _, name in CAPABILITIES)


# The dated names of models: gpt-4o-2024-08-06, claude-3-opus-20240229.
DATED = re.compile(r"(?<!\d)(20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)", re.ASCII)


class Row(msgspec.Struct, gc=False):
    """The fields that are read from a row, each of any type, so that one malformed row does not fail the table.

    `max_tokens` is not read: in most rows it is the maximum reply, in some the window.
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
    litellm_provider: Any = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A model's limits in tokens, and its capabilities (`can`); None if the table has none of them."""

    name: str
    tokens: int
    max_input: int | None = None
    max_output: int | None = None
    can: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of text models by name, and the names of rows that share a short name (without vendor and version).

    `sums` are the (input, output) figures of rows whose window is the sum of both (`[[beside]]` in rules/windows.toml).
    `newest` is the newest date in a name (`2026-07-09`; empty: none). The table was published after it.
    """

    rows: Mapping[str, Row]
    by_short_name: Mapping[str, Sequence[str]]
    prices: PriceTable
    sums: Collection[tuple[int, int]] = ()
    newest: str = ""

    def exact(self, name: str) -> Entry | None:
        """The entry of the row with exactly this name."""
        return self._entry(name) if name in self.rows else None

    def shared(self, short_name: str) -> Entry | None:
        """The entry on which most rows with this short name agree. Rows without a version come before rows with one,
        and rows of the vendor before rows of hosts."""
        found = self.by_short_name.get(short_name)
        if not found:
            return None
        return _majority([self._entry(name) for name in _closest(found, short_name)])

    def _entry(self, name: str) -> Entry:
        row = self.rows[name]
        max_input_tokens, output = row.max_input_tokens, row.max_output_tokens
        output = output if type(output) is int and output > 0 else None
        window, max_input = max_input_tokens, None
        if (max_input_tokens, output) in self.sums:
            window, max_input = max_input_tokens + output, max_input_tokens
        max_output = output if output and output < window else None  # as large as the window, it limits nothing
        return Entry(name, window, max_input, max_output, _capabilities(row))


def _closest(names: Sequence[str], short_name: str) -> list[str]:
    """The best of the rows that share a short name."""
    ranks = [(model_names.without_vendor(name) != short_name, distance(name)) for name in names]
    return [name for name, rank in zip(names, ranks, strict=True) if rank == min(ranks)]


def _capabilities(row: Row) -> frozenset[str] | None:
    stated = [(name, value) for field, name in CAPABILITIES if (value := getattr(row, field)) is not None]
    return frozenset(name for name, value in stated if value is True) if stated else None


def table_file() -> Path:
    """The path of the newest table that is installed. Raises `ConfigError` if there is none."""
    path = litellm_data.path_of(FILE)
    if path is None:
        raise ConfigError(
            f"litellm's model table ({FILE}) was not found: install plimsoll[litellm], or a built package"
        )
    return path


def read_table(raw: bytes, sums: Collection[tuple[int, int]] = ()) -> Table:
    """The table, parsed; about 4,000 rows. Raises `ConfigError` for anything but a JSON object of rows."""
    try:
        rows = msgspec.json.decode(raw, type=dict[str, Row])
        raws = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{FILE}: {error}") from None
    measured = {name: row for name, row in rows.items() if row.mode in PRICED}
    kept = {n.lower(): row for n, row in measured.items() if row.mode in MODES and _is_positive(row.max_input_tokens)}
    shared = _by_short_name(name.lower() for name in measured)
    prices = PriceTable(
        {name.lower(): raws[name] for name in measured},
        {name.lower(): str(row.litellm_provider) for name, row in measured.items()},
        shared,
    )
    by_short_name = {
        short: with_windows
        for short, names in shared.items()
        if (with_windows := [name for name in names if name in kept])
    }
    return Table(kept, by_short_name, prices, frozenset(sums), _newest_date(rows))


def _by_short_name(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The names that share a short name: without vendor, or without vendor and version."""
    found: dict[str, list[str]] = {}
    for name in names:
        bare = model_names.without_vendor(name)
        found.setdefault(bare, []).append(name)
        if (stem := model_names.without_version(bare)) != bare and model_names.is_distinctive(stem):
            found.setdefault(stem, []).append(name)
    return found


def _newest_date(names: Iterable[str]) -> str:
    dates = {"-".join(match.groups()) for name in names for match in DATED.finditer(name)}
    return next((text for text in sorted(dates, reverse=True) if _is_date(text)), "")


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_positive(figure: Any) -> bool:
    return type(figure) is int and figure > 0


def _majority(entries: list[Entry]) -> Entry:
    """The window that most hosts of a model state. The host of a request is unknown, so the other limits are the
    largest of all hosts, and the capabilities those of any: a needless cut is worse than a refusal."""
    tokens = median_high(multimode(entry.tokens for entry in entries))
    agreeing = [entry for entry in entries if entry.tokens == tokens]
    can = [entry.can for entry in agreeing if entry.can is not None]
    return Entry(
        name=agreeing[0].name,
        tokens=tokens,
        max_input=_largest([entry.max_input for entry in agreeing]),
        max_output=_largest([entry.max_output for entry in agreeing]),
        can=frozenset().union(*can) if can else None,
    )


def _largest(bounds: list[int | None]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) else None
