"""What a scrape costs where many models and callers are told apart: its size, its time, and what others wait meanwhile.

    python -m tests.bench.scrape [--models 500] [--callers 50] [--workers 4] [--root DIR]

A real proxy has a row of rules for each model and a name for each caller. Each pair sends a request, then the metrics
are scraped in both formats while nobody asks anything. After that a prober of 50 requests a second waits with nobody
scraping, with a scrape every second, and with one scrape after the other. Returns 1 if a scrape is over 1 MB or 300 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.bench.arguments import checkout
from tests.bench.stalls import ROOT
from tests.hostile import harness
from tests.hostile.harness import Running, running_anew
from tests.ports import reserved_port

MOST_BYTES, MOST_MS = 1_000_000, 300.0
FORMATS = {"text": "text/plain", "OpenMetrics": "application/openmetrics-text;version=1.0.0"}
SCRAPES = 10
CLIENTS = 16
SECONDS = 6.0  # of each measurement of the prober
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def name_of(number: int) -> str:
    """A model's name, as long as many are."""
    return f"vendor-large-model-{number:04}"


def write_rules(folder: Path, models: int, callers: int) -> None:
    """A row for each model, and a name for each caller."""
    rows = [f'[[window]]\nmodel = "{name_of(i)}"\ntokens = 8000\n' for i in range(models)]
    (folder / "windows.toml").write_text("\n".join(rows))
    (folder / "callers.toml").write_text(f"callers = {json.dumps([f'team-{i:03}' for i in range(callers)])}\n")


async def send_all(port: int, models: int, callers: int) -> None:
    """A request of each pair of model and caller; every tenth is a stream."""
    left: Iterator[tuple[int, int]] = iter([(i, j) for i in range(models) for j in range(callers)])

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for model, caller in left:
            writer.write(request(model, caller))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            if found := re.search(rb"(?i)content-length: (\d+)", head):
                await reader.readexactly(int(found[1]))
            else:
                await reader.readuntil(b"0\r\n\r\n")
        writer.close()

    await asyncio.gather(*[client() for _ in range(CLIENTS)])


def request(model: int, caller: int) -> bytes:
    """A short request, or a long one that is cut."""
    turns = 40 if (model + caller) % 10 == 0 else 2
    messages = [{"role": "user" if k % 2 == 0 else "assistant", "content": f"words {k} " * 150} for k in range(turns)]
    body = {"model": name_of(model), "messages": [*messages, {"role": "user", "content": "And now?"}], "max_tokens": 9}
    body["stream"] = (model + caller) % 7 == 0
    raw = json.dumps(body).encode()
    return f"{HEAD}x-team: team-{caller:03}\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw


def scrape(proxy: Running, accept: str) -> tuple[float, bytes]:
    """The seconds and the body of one scrape."""
    began = time.perf_counter()
    answered = proxy.ask(path="/metrics", headers={"accept": accept}, timeout=120, admin=True)
    assert answered.status == 200
    return time.perf_counter() - began, answered.body


def probed(proxy: Running, pause: float | None) -> tuple[float, float, int]:
    """What the prober waits (p50 and p99 in ms) while somebody scrapes after pauses in seconds, or nobody does (None);
    and how many scrapes there were."""
    prober = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.stalls", "--prober", str(proxy.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert prober.stdout is not None
    prober.stdout.readline()
    over, scrapes = threading.Event(), 0

    def scraping() -> None:
        nonlocal scrapes
        while pause is not None and not over.is_set():
            scrape(proxy, FORMATS["OpenMetrics"])
            scrapes += 1
            over.wait(pause)

    thread = threading.Thread(target=scraping)
    thread.start()
    time.sleep(SECONDS)
    over.set()
    thread.join()
    printed, _ = prober.communicate("")
    waited = sorted(json.loads(printed))
    return statistics.median(waited), waited[int(len(waited) * 0.99)], scrapes


@contextlib.contextmanager
def upstream() -> Iterator[int]:
    """An upstream that answers at once, with usage; its port."""
    port = reserved_port()
    behind = subprocess.Popen([sys.executable, "-m", "tests.bench.upstream", str(port)], cwd=ROOT)
    try:
        yield port
    finally:
        behind.kill()
        behind.wait()


def samples(body: bytes) -> Counter[str]:
    """The samples of a scrape, by metric."""
    names = (line.partition(b"{")[0].partition(b" ")[0] for line in body.splitlines() if not line.startswith(b"#"))
    return Counter(re.sub(r"_(bucket|count|sum)$", "", name.decode()) for name in names)


def folded(body: bytes) -> str:
    """What was folded, as the metrics say it."""
    return ", ".join(line for line in body.decode().splitlines() if line.startswith("plimsoll_labels_folded_total{"))


def main() -> int:
    """Runs all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=500)
    parser.add_argument("--callers", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--root", type=checkout, default=ROOT, help="the checkout whose proxy runs")
    given = parser.parse_args()
    harness.ROOT, good = given.root.resolve(), True
    with tempfile.TemporaryDirectory() as rules, upstream() as port:
        write_rules(Path(rules), given.models, given.callers)
        settings = {"PLIMSOLL_RULES": rules, "PLIMSOLL_CALLER_HEADER": "x-team"}
        behind = f"http://127.0.0.1:{port}/v1"
        with running_anew(behind, workers=given.workers, admin=True, **settings) as proxy:
            asyncio.run(send_all(proxy.port, given.models, given.callers))
            time.sleep(2)
            for name, accept in FORMATS.items():
                found = [scrape(proxy, accept) for _ in range(SCRAPES)]
                size, times = len(found[-1][1]), [1000 * seconds for seconds, _ in found]
                series = samples(found[-1][1])
                good = good and size <= MOST_BYTES and statistics.median(times) <= MOST_MS
                print(
                    f"{name:12} {size / 1e6:.2f} MB, {sum(series.values()):,} samples, median "
                    f"{statistics.median(times):.0f} ms, most {max(times):.0f} ms"
                )
            print("most samples:", ", ".join(f"{name} {count:,}" for name, count in series.most_common(6)))
            print("folded:", folded(found[-1][1]) or "nothing is said")
            for what, pause in (("nobody scrapes", None), ("a scrape a second", 1.0), ("scrapes in a loop", 0.0)):
                half, most, scrapes = probed(proxy, pause)
                print(f"{what:18} others wait p50 {half:.1f} ms, p99 {most:.1f} ms; {scrapes} scrapes")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
