"""The limit: a reader that does nothing but note the time of each read and look for the end. `bench/replay/run.py`.

An asyncio.Protocol on uvloop that knows this server's bytes by heart; no client could do less in Python. Prints a
line of JSON for each request, in the form of `tune replay --per-request`.
"""

import argparse
import asyncio
import json
import time
from array import array
from collections import deque

import uvloop

DONE = b"data: [DONE]\n\n\r\n0\r\n\r\n"


class Reader(asyncio.Protocol):
    """One connection, reused."""

    def __init__(self, done: "asyncio.Queue[Reader]") -> None:
        self.done = done
        self.times: array[float] = array("d")
        self.chunks = 0
        self.number = 0
        self.sent_s = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self.transport = transport  # type: ignore[assignment] # create_connection makes asyncio.Transport

    def send(self, number: int, body: bytes) -> None:
        """Write one request."""
        self.number, self.times, self.chunks = number, array("d"), 0
        self.sent_s = time.perf_counter()
        self.transport.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.times.append(time.perf_counter())
        self.chunks += data.count(b"data: ")
        if data.endswith(DONE):
            self.done.put_nowait(self)


async def closed(port: int, bodies: list[bytes], concurrency: int) -> None:
    """Keep `concurrency` requests in flight."""
    done: asyncio.Queue[Reader] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    waiting = deque(enumerate(bodies))
    for _ in range(min(concurrency, len(bodies))):
        _, reader = await loop.create_connection(lambda: Reader(done), "127.0.0.1", port)
        done.put_nowait(reader)
    left = len(bodies)
    while left:
        reader = await done.get()
        if reader.times:
            report(reader)
            left -= 1
        if waiting:
            reader.send(*waiting.popleft())


async def opened(port: int, bodies: list[bytes], rate: float) -> None:
    """Send at a steady beat."""
    done: asyncio.Queue[Reader] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for _ in range(64):
        _, reader = await loop.create_connection(lambda: Reader(done), "127.0.0.1", port)
        done.put_nowait(reader)
    started_s = time.perf_counter()
    for number, body in enumerate(bodies):
        await asyncio.sleep(max(0.0, started_s + number / rate - time.perf_counter()))
        reader = await done.get()
        if reader.times:
            report(reader)
        reader.send(number, body)
    await asyncio.sleep(1.0)
    while not done.empty():
        reader = done.get_nowait()
        if reader.times:
            report(reader)


def report(reader: Reader) -> None:
    """Print what was noted of one request."""
    # The head comes with the first event or alone; the end comes with or after the last: both are as good as exact.
    print(json.dumps({"id": reader.number, "ttft_s": reader.times[0] - reader.sent_s, "tpot_s": None, "error": None}))
    reader.times = array("d")


def main() -> None:
    """Runs one of the two loops."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--prompts", type=int, required=True)
    parser.add_argument("--concurrency", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0)
    arguments = parser.parse_args()
    bodies = [
        json.dumps({"prompt": f"request {number:04d}", "stream": True}).encode() for number in range(arguments.prompts)
    ]
    if arguments.rate:
        uvloop.run(opened(arguments.port, bodies, arguments.rate))
    else:
        uvloop.run(closed(arguments.port, bodies, arguments.concurrency))


if __name__ == "__main__":
    main()
