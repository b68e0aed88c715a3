"""What limits what a report of a replay says, and how its figures are written: for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.replay.report import FIGURES_ONLY

MOST_NAMED = 8  # models, upstreams or rules in one note
SEARCHES = "no_price_of_searches"


def notes(found: dict[str, Any]) -> list[str]:
    """What limits what the report says."""
    given, only = found["input"], found["figures_only"]
    said = [f"not in the recording: {what} ({count:,} requests)" for what, count in given["missing"].items()]
    if given["requests"] and given["with_time"] < given["requests"]:
        said.append(f"{given['requests'] - given['with_time']:,} requests have no time: taken to follow one another")
    if unknown := found["columns"][0]["total"]["window_unknown"]:
        said.append(f"{unknown:,} requests are for models whose window is not known: taken to fit")
    if given["out_of_order"]:
        said.append(f"{given['out_of_order']:,} requests came out of order: their cache figures may be too low")
    if given["redacted"]:
        said.append(f"{given['redacted']:,} requests are redacted: counts hold, but which texts a cut keeps does not")
    if given["unknown_upstreams"]:
        names = ", ".join(given["unknown_upstreams"][:MOST_NAMED])
        said.append(f"recorded upstreams without a row in upstreams.toml: {names}: prices are those of models' vendors")
    if given["unused_rules"]:
        said.append(f"rules of callers.toml that no request is under: {', '.join(given['unused_rules'][:MOST_NAMED])}")
    if only is not None:
        said.append(
            f"{only['requests']:,} requests have figures only, of the proxy that recorded them: {only['over']:,} over "
            f"the line, {only['near']:,} near it, {only['cut']:,} cut, {only['tokens']['removed']:,} tokens removed"
        )
        said.append(FIGURES_ONLY)
    return said


def unpriced_name(row: dict[str, Any]) -> str:
    """A model without a price, where it was served, and for how many requests."""
    where = f" at {row['where']}" if row["where"] else ""
    why = f" ({reason})" if (reason := unpriced_reason(row)) else ""
    return f"{row['model']}{why}{where} ({row['requests']:,})"


def unpriced_reason(row: dict[str, Any]) -> str:
    """Why a model has no price; empty if it has none at all."""
    return "its searches of the web" if row["why"] == SEARCHES else ""


def unpriced(found: Sequence[dict[str, Any]]) -> list[str]:
    """Which models have no price, and how to give one."""
    if not found:
        return []
    named = ", ".join(map(unpriced_name, found[:MOST_NAMED]))
    more = f" and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
    return [f"without a price: {named}{more}: give them one by [[price]] rows in windows.toml, with --rules FOLDER"]


def evidence(found: dict[str, Any]) -> str:
    """The share of names that replies took from requests which would be cut or not sent, and that would be sent."""
    taken, kept, requests, paired = (found["evidence"][key] for key in ("taken", "kept", "requests", "paired"))
    share = f"{kept / taken:.1%} of {taken:,}" if taken else "-"
    return share if paired == requests else f"{share}, replies to {paired:,} of {requests:,}"


def dollars(amount: float) -> str:
    """US dollars, with cents, and with more figures for small amounts."""
    return f"${amount:,.2f}" if abs(amount) >= 1 or not amount else f"${amount:.4f}"


def shows_group(column: dict[str, Any], key: str) -> bool:
    """Whether a way to group requests says more than others: mostly, apps are the callers."""
    names = {group["name"] for group in column[key]}
    return key != "apps" or names != {group["name"] for group in column["callers"]}


def money(group: dict[str, Any], key: str) -> str:
    """A sum of money of a group; it says so where nothing of it has a price."""
    return dollars(group["money"][key]) if group["money"]["priced"] else "no price"
