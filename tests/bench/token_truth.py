"""Compares our counts with the prompt tokens that providers reported for recorded requests; changes nothing.

    python tests/bench/token_truth.py http://127.0.0.1:8080 --data DIR     asks a running proxy (/inspect)
    python tests/bench/token_truth.py --direct --data DIR                  counts in this process
    python tests/bench/token_truth.py ... --api responses --skip NAME      requests of another API, without some sources

DIR holds token_truth*.jsonl.gz: rows of provider, model, endpoint, request, prompt_tokens and features.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.apis import apis
from proxy.fit.blocks import runs
from proxy.model.api import Api
from proxy.model.limits import Quality
from proxy.tokens.families import BUILT_IN
from proxy.tokens.meter import meter_for
from proxy.wire.scan import NotUnderstood

CHAT = "chat"
INSPECT = "/inspect"
SECONDS = 30
SLACK = 8  # tokens: an under-count of more could turn a request that fits by our count into a refusal
NEAR, CLOSE = 0.03, 3  # a share of the truth; tokens
OPENAI = re.compile(r"gpt-|o\d|chatgpt|codex|computer|text-embedding|davinci-002|babbage-002")
HOSTS = ("openai", "azure", "chatgpt", "copilot")
# What no count of the request can show: the data of files, sounds and images was not recorded with it.
UNSEEN = {"file", "audio", "image", "web_search", "custom_tool", "base64_stripped"}
TARGET = "OpenAI and Azure, text and tools"
EXACT = Quality.EXACT.value
COUNTABLE = "OpenAI and Azure, counted exactly"
MESSAGES = "messages"
FAMILIES = {"openrouter": BUILT_IN.at("openrouter.ai")}  # of providers that rows of families.toml name the host of
NEW_CLAUDE = re.compile(r"opus-4-[7-9]|(?:sonnet|opus|haiku)-5")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Count:
    """What was answered for one row, beside the truth; all in tokens."""

    truth: int
    prompt: int
    margin: int
    quality: str

    @property
    def under(self) -> int:
        """By how much our count is too low."""
        return self.truth - self.prompt


Ask = Callable[[bytes, str], Count | None]  # of a body and the provider that it was sent to


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; returns 0, or 2 where there is nothing to measure."""
    options = _options(arguments)
    files = sorted(options.data.glob("token_truth*.jsonl.gz"))
    if not files:
        print(f"no data: {options.data} holds no token_truth*.jsonl.gz; name its folder with --data", file=sys.stderr)
        return 2
    if not options.direct and not options.url:
        print("nothing to ask: give the address of a running proxy, or --direct", file=sys.stderr)
        return 2
    api = next(api for api in apis() if api.name == options.api)
    ask = partial(directly, api) if options.direct else over_http(options.url.rstrip("/") + INSPECT + api.paths[0])
    found = (row for file in files for row in rows(file, api.name, options.skip))
    groups, failed = measured(found, ask)
    for title in ("set", "provider", "feature", "quality"):
        print(table(title, groups[title]), end="\n\n")
    if failed:
        print(f"not counted: {failed} rows whose body is no request of this API, or that were refused")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="where the proxy listens")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder of the recorded rows")
    parser.add_argument("--api", default=CHAT, choices=[api.name for api in apis()], help="whose requests are counted")
    parser.add_argument("--skip", action="append", default=[], help="a part of the names of sources that are left out")
    parser.add_argument("--direct", action="store_true", help="count in this process, without a proxy")
    return parser.parse_args(arguments)


def rows(file: Path, api: str = CHAT, skip: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of an API in a file that tell what was counted, without those of some sources."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["endpoint"] == api and row["prompt_tokens"] and not any(name in row["source"] for name in skip):
                yield row


def measured(found: Iterable[Row], ask: Ask) -> tuple[dict[str, Any], int]:
    """The counts by kind of group and name of group, and how many rows could not be counted."""
    groups: dict[str, dict[str, list[Count]]] = defaultdict(lambda: defaultdict(list))
    failed = 0
    for row in found:
        body = {**row["request"], "model": row["model"] or row["request"].get("model") or "unknown"}
        answer = ask(json.dumps(body).encode(), row["provider"])
        if answer is None:
            failed += 1
            continue
        count = Count(row["prompt_tokens"], answer.prompt, answer.margin, answer.quality)
        for title, name in _names(row, count):
            groups[title][name].append(count)
    return groups, failed


def _names(row: Row, count: Count) -> Iterator[tuple[str, str]]:
    """The groups that a row belongs to."""
    features = set(row.get("features") or ())
    if row["provider"].startswith(HOSTS) and OPENAI.match((row["model"] or "").lower()):
        if row["endpoint"] != CHAT:
            yield "set", COUNTABLE if count.quality == EXACT else "OpenAI and Azure, with parts of unknown cost"
            return
        yield "set", TARGET if not features & UNSEEN else "OpenAI and Azure, with images, sounds or files"
    elif row["endpoint"] == MESSAGES:
        yield "set", _claude(row)
    else:
        yield "set", "all others"
    yield "provider", row["provider"]
    yield "quality", count.quality
    for feature in features or {"(text alone)"}:
        yield "feature", feature


def _claude(row: Row) -> str:
    """The set of a row of the Messages API. What its provider adds to a prompt, or removes from it, is unknown."""
    features, sent = set(row["features"]), row["request"]
    hosted = any(feature.startswith("hosted_tool") for feature in features)
    schema = "output_format" in sent or "format" in (sent.get("output_config") or {})
    if hosted or schema or features & UNSEEN or {"mcp_servers", "context_management"} & sent.keys():
        return "Claude, with parts of unknown cost"
    return "Claude 4.7 and later" if NEW_CLAUDE.search(row["model"] or "") else "Claude up to 4.6"


def directly(api: Api, body: bytes, provider: str = "") -> Count | None:
    """Counts a body in this process, as for an upstream with the provider's host."""
    try:
        prompt = api.request.parse(body)
    except NotUnderstood:
        return None
    meter = meter_for(prompt, prompt.model, _MEMORY, families=FAMILIES.get(provider, BUILT_IN))
    tokens = sum(meter.fixed.values()) + sum(sum(meter.costs(run)) for run in runs(prompt.messages))
    return Count(0, tokens, meter.margin.of(tokens), meter.quality.value)


class _Memory(dict[bytes, tuple[int, ...]]):
    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        self[key] = value


_MEMORY = _Memory()


def over_http(url: str) -> Ask:
    """Asks a running proxy what it would count."""

    def ask(body: bytes, provider: str) -> Count | None:
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                tokens = json.load(answer)["tokens"]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise SystemExit(f"{url} is not there: is this a proxy with its /inspect on this port?") from None
            return None
        except urllib.error.URLError as error:
            raise SystemExit(f"nobody answers at {url}: {error.reason}") from None
        return Count(0, tokens["prompt"], tokens.get("margin", 0), tokens["quality"])

    return ask


def table(title: str, groups: Mapping[str, Sequence[Count]]) -> str:
    """One line a group: rows, shares of them in per cent, and the median error in per cent."""
    columns = f"{'rows':>6} {'exact':>7} {'in 3':>6} {'in 3 %':>7} {'median':>7} {f'>{SLACK} under':>9} {'>margin':>8}"
    head = f"{title:<46} {columns}"
    lines = [_line(name, counts) for name, counts in sorted(groups.items(), key=lambda item: -len(item[1]))]
    return "\n".join([head, *lines])


def _line(name: str, counts: Sequence[Count]) -> str:
    def share(holds: Callable[[Count], bool]) -> float:
        return 100 * sum(map(holds, counts)) / len(counts)

    exact = share(lambda c: c.under == 0)
    close = share(lambda c: abs(c.under) <= CLOSE)
    near = share(lambda c: abs(c.under) <= NEAR * c.truth)
    median = 100 * statistics.median(abs(c.under) / c.truth for c in counts)
    under = share(lambda c: c.under > SLACK)
    beyond = share(lambda c: c.under > c.margin)
    shares = f"{exact:>7.1f} {close:>6.1f} {near:>7.1f} {median:>7.2f} {under:>9.2f} {beyond:>8.2f}"
    return f"{name[:46]:<46} {len(counts):>6} {shares}"


if __name__ == "__main__":
    raise SystemExit(main())
