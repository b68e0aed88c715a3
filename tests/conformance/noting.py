"""An upstream that writes down every request, byte for byte, and hands it on to the mock behind it.

`python -m tests.conformance.noting MOCK_PORT FILE`: prints its port, then notes until it is told to stop.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import sys
from typing import TextIO

from tests.recorder import Peer, Request, recording


def note(request: Request, here: str, out: TextIO) -> None:
    """One line of JSON: where, what was asked, with which headers and which body."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    told = {
        "here": here,
        "method": request.method.decode(),
        "target": request.target.decode("latin-1"),
        "headers": headers,
        "body": base64.b64encode(request.body).decode(),
    }
    out.write(json.dumps(told) + "\n")


async def hand_on(request: Request, peer: Peer, port: int) -> None:
    """The mock's answer, every byte as it comes; one connection for each request, so that its end is the answer's."""
    lines = request.head.rstrip(b"\r\n").split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"\r\n".join((*kept, b"connection: close", b"", b"")) + request.raw_body)
        while data := await reader.read(65536):
            await peer.send(data)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        peer.close()


async def serve(port: int, path: str) -> None:
    """Notes until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with open(path, "w", encoding="ascii") as out:

        async def script(request: Request, peer: Peer) -> None:
            note(request, f"127.0.0.1:{recorder.port}", out)
            await hand_on(request, peer, port)

        async with recording(script) as recorder:
            print(recorder.port, flush=True)
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
