"""Measures `plimsoll replay`: agreement with /inspect, memory over a million lines, speed, the model of prompt caches.

python -m tests.bench.replays agree URL FILE ...     every plan beside that of a running proxy's /inspect
python -m tests.bench.replays memory [--lines N]     memory and tokens a second over so many lines, made here
python -m tests.bench.replays cache FOLDER           expected cached tokens beside those that providers reported

FILE and FOLDER are anything that `plimsoll replay` reads. `agree` returns 1 if a figure differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proxy.apis import api_of
from proxy.config.rules import load_rules
from proxy.config.settings import Settings, read_settings
from proxy.config.windows import load_windows
from proxy.fit.money import PromptCache
from proxy.fit.prompt_cache import PrefixStore
from proxy.replay.agreement import Errors
from proxy.replay.engine import Options, results
from proxy.replay.files import Source, files_of
from proxy.replay.order import Coverage, Placed, in_order
from proxy.replay.plan_worker import Column, Planned
from proxy.replay.prices import RecordedPrices
from proxy.replay.report import Replay
from proxy.replay.sums import cache_of
from tests.bench.arguments import existing

SECONDS = 60
LEAST = 1_024  # tokens from which providers cache
MEDIA = (b'"image', b'"input_image', b'"file', b'"input_file', b'"document', b'"audio', b'"input_audio')
WORDS = 20_000  # different ones in the lines that are made
EVERY = 100_000  # lines between two looks at the memory
TURNS = 8  # of the conversations that are made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    agree = kinds.add_parser("agree")
    agree.add_argument("url", help="where a proxy listens, with its /inspect")
    agree.add_argument("file", nargs="+", type=existing)
    agree.add_argument("--window", type=int, help="a smaller window, so that more is cut")
    agree.set_defaults(run=agreement)
    memory = kinds.add_parser("memory")
    memory.add_argument("--lines", type=int, default=1_000_000)
    memory.add_argument("--jobs", type=int, default=os.cpu_count())
    memory.set_defaults(run=memory_and_speed)
    cache = kinds.add_parser("cache")
    cache.add_argument("folder", type=existing)
    cache.set_defaults(run=cache_model)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def settings() -> Settings:
    """The settings of the environment."""
    return read_settings(dict(os.environ))


def read(paths: Iterable[Path]) -> Iterator[Placed]:
    """The requests in these files, in order."""
    return in_order([Source(path) for path in files_of(paths)], Coverage())


def agreement(options: argparse.Namespace) -> int:
    """Compares every figure of every plan."""
    column = Column(window=options.window)
    bodies = (placed.recorded.body for placed in read(options.file))
    ours = results(read(options.file), Options(settings(), (column,), 0, reports=True))
    lines = same = cut = unplanned = 0
    for body, result in zip(bodies, ours, strict=True):
        (planned,) = result.planned
        theirs = inspected(options.url, body, options.window)
        lines += 1
        agrees = "error" in theirs if planned.unplanned else subset(planned.report, theirs)
        same += agrees
        cut += planned.changed
        unplanned += bool(planned.unplanned)
        if not agrees:
            print(f"entry {result.placed.entry} differs", file=sys.stderr)
    print(f"{lines} lines, {cut} cut, {unplanned} refused by both: {same} agree with /inspect in every figure")
    return 0 if unplanned < lines == same else 1


def inspected(url: str, body: bytes, window: int | None) -> Any:
    """What a running proxy says of a body."""
    api = api_of(body)
    path = "/v1/chat/completions" if api is None else api.paths[0]
    headers = {"content-type": "application/json"} | ({} if window is None else {"x-plimsoll-window": str(window)})
    request = urllib.request.Request(f"{url.rstrip('/')}/inspect{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)
    except urllib.error.URLError as error:
        raise SystemExit(f"no proxy answers at {url}: {error.reason}") from None


def subset(ours: Any, theirs: Any) -> bool:
    """Whether all that we say is said by them in the same digits."""
    if isinstance(ours, dict):
        return isinstance(theirs, dict) and all(subset(said, theirs.get(key)) for key, said in ours.items())
    return json.dumps(ours) == json.dumps(theirs)


def memory_and_speed(options: argparse.Namespace) -> int:
    """Replays lines that are made here, and prints memory on the way."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lines.jsonl"
        write(path, options.lines)
        print(f"{options.lines:,} lines, {path.stat().st_size / 1e6:,.0f} MB, {options.jobs} processes")
        windows = load_windows(load_rules(None).windows)
        replay = Replay((Column(),), RecordedPrices(windows, settings(), ()))
        began, done = time.monotonic(), 0
        plans = in_order([Source(path)], replay.coverage)
        for result in results(plans, Options(settings(), (Column(),), options.jobs)):
            replay.add(result)
            done += 1
            if done % (EVERY if options.lines > EVERY else options.lines) == 0:
                _print_progress(done, replay, time.monotonic() - began, max(1, options.jobs))
    return 0


def _print_progress(done: int, replay: Replay, seconds: float, jobs: int) -> None:
    rss = [_rss_mb(pid) for pid in (os.getpid(), *_children())]
    each = replay.tokens / seconds / jobs
    workers = ", ".join(f"{one:,.0f}" for one in rss[1:])
    print(
        f"{done:>9,} lines  {rss[0]:>5,.0f} MB, workers {workers} MB  {each:>10,.0f} tokens a second and core",
        flush=True,
    )


def write(path: Path, lines: int) -> None:
    """Writes logged calls, in the form of LiteLLM's: conversations that grow, a second apart."""
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(WORDS)]
    talks: list[list[dict[str, str]]] = [[] for _ in range(16)]
    with path.open("w") as file:
        for number in range(lines):
            talk = talks[number % len(talks)]
            if len(talk) > 2 * TURNS:
                talk.clear()
            talk.append({"role": "user", "content": " ".join(chance.choices(words, k=60))})
            line = {
                "call_type": "completion",
                "model": ("gpt-4o", "gpt-4", "claude-sonnet-4-5")[number % 3],
                "messages": talk,
                "model_parameters": {"max_tokens": 200},
                "startTime": 1_763_000_000 + number,
                "metadata": {"user_api_key_team_alias": f"team {number % 40}"},
            }
            file.write(json.dumps(line) + "\n")
            talk.append({"role": "assistant", "content": " ".join(chance.choices(words, k=40))})


def _rss_mb(pid: int) -> float:
    try:
        found = re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def _children() -> list[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in found.split()]


def cache_model(options: argparse.Namespace) -> int:
    """Prints the error of the model of prompt caches, by model and over all, of prompts of text that repeat one in the
    same file. A file in which a prompt reads what is not in it is left out from there on: others filled that cache."""
    windows = load_windows(load_rules(None).windows)
    store, ever = PrefixStore(), PrefixStore()
    found: dict[str, Errors] = {}
    whole, others, media = Errors(), set(), set()

    def noted() -> Iterator[Placed]:
        for placed in read([options.folder]):
            if any(sign in placed.recorded.body for sign in MEDIA):
                media.add((placed.file, placed.place))
            yield placed

    for result in results(noted(), Options(settings(), (Column(),), 0)):
        (p,), placed = result.planned or (Planned(),), result.placed
        usage, scope = placed.recorded.usage, (placed.file, placed.recorded.caller, p.model)
        if p.asked is None or usage is None or usage.prompt < LEAST or (placed.file, placed.place) in media:
            continue
        cache = cache_of(windows.prices(p.model), p.api)
        expected = store.add(scope, p.asked, placed.recorded.at or 0.0, cache).read * usage.prompt // p.prompt
        repeats = ever.add(scope, p.asked, 0.0, PromptCache(LEAST)).read > 0
        if usage.cached and not repeats:
            others.add(scope)
        elif repeats and scope not in others:
            for errors in (found.setdefault(p.model, Errors()), whole):
                errors.add(expected, usage.cached, usage.prompt)
    print(f"{'model':<40} {'requests':>8} {'expected':>10} {'reported':>10} {'mean error':>10} {'within 1 %':>10}")
    for name, errors in [*sorted(found.items(), key=lambda one: -one[1].count), ("all", whole)]:
        if errors.count:
            print(_errors(name, errors))
    print(f"left out: {len(others)} files whose cache others filled, {len(media)} prompts with images or files")
    return 0


def _errors(name: str, errors: Errors) -> str:
    mean = errors.mean or 0.0
    counts = f"{errors.count:>8,} {errors.estimated:>10,} {errors.reported:>10,}"
    return f"{name[:40]:<40} {counts} {mean:>10.1%} {errors.within / errors.count:>10.0%}"


if __name__ == "__main__":
    raise SystemExit(main())
