"""A cheap server that streams like vLLM and keeps its own record of when it sent what: the truth of `bench/replay`.

One asyncio.Protocol per connection on uvloop, no framework. Each request is answered with `--chunks` events of
`--tokens-per-chunk` tokens, `--gap-ms` apart. The prompt is to have "request NNNN" in it; the record (JSON on
standard output at SIGTERM) is by that number: when the request had arrived, when the first and the last event with
tokens were sent. Says "first" on standard output when the first request arrives. The clock is CLOCK_MONOTONIC.
"""

import argparse
import asyncio
import json
import re
import signal
import time

import uvloop

NUMBER = re.compile(rb"request (\d{4,})")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"mock","object":"model","max_model_len":100000}]}'


class Mock:
    """What all connections share."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.chunks, self.tokens = arguments.chunks, arguments.tokens_per_chunk
        self.gap_s = arguments.gap_ms / 1000
        self.record: list[dict[str, float]] = []
        self.events = {chat: self._render(chat=chat) for chat in (False, True)}

    def _render(self, *, chat: bool) -> list[bytes]:
        """The chunks of an answer: the same for every request."""
        total = self.chunks * self.tokens
        lines = []
        for number in range(1, self.chunks + 1):
            usage = {
                "prompt_tokens": 64,
                "total_tokens": 64 + number * self.tokens,
                "completion_tokens": number * self.tokens,
            }
            finish = "length" if number == self.chunks else None
            text = " word" * self.tokens
            piece = {"delta": {"content": text}} if chat else {"text": text}
            choice = {"index": 0, **piece, "logprobs": None, "finish_reason": finish, "stop_reason": None}
            lines.append(self._event([choice], usage, chat=chat))
        usage = {"prompt_tokens": 64, "total_tokens": 64 + total, "completion_tokens": total}
        end = self._event([], usage, chat=chat) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        return [*lines, end]

    def _event(self, choices: list[object], usage: object, *, chat: bool) -> bytes:
        event = {
            "id": "chatcmpl-0123456789abcdef0123456789abcdef",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1790000000,
            "model": "mock",
            "choices": choices,
            "usage": usage,
        }
        return _chunk(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Stream(asyncio.Protocol):
    """One connection; requests on it come one after the other."""

    def __init__(self, mock: Mock) -> None:
        self.mock = mock
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.transport: asyncio.Transport
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self.transport = transport  # type: ignore[assignment] # create_server makes asyncio.Transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        del exc
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not end or len(body) < (int(length[1]) if length else 0):
            return
        arrived_s = time.monotonic()
        self.buffer = b""
        if head.startswith(b"POST"):
            if not self.mock.record:
                print("first", flush=True)
            self.answer(head, body, arrived_s)
        else:
            found = b"/v1/models" in head
            body, status = (
                (MODELS, b"200 OK") if found else (b"", b"200 OK" if b"/health" in head else b"404 Not Found")
            )
            self.transport.write(
                b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (status, len(body), body)
            )

    def answer(self, head: bytes, body: bytes, arrived_s: float) -> None:
        """Stream the answer to one request."""
        number = NUMBER.search(body)
        entry = {"request": int(number[1]) if number else -1, "arrived_s": arrived_s, "first_s": 0.0, "last_s": 0.0}
        self.mock.record.append(entry)
        events = self.mock.events[b"/chat/" in head.partition(b"\r\n")[0]]
        self.step(events, 0, entry, self.loop.time())

    def step(self, events: list[bytes], position: int, entry: dict[str, float], started_s: float) -> None:
        """Send what is due; without a gap, as much as the socket takes at once."""
        transport, chunks, gap_s = self.transport, self.mock.chunks, self.mock.gap_s
        if transport.is_closing():
            return
        if gap_s:
            if position == chunks:
                transport.write(events[position])
                return
            now_s = time.monotonic()
            transport.write(events[position] if position else HEAD + events[0])
            entry["first_s"] = entry["first_s"] or now_s
            entry["last_s"] = now_s
            # Against the start of the answer, so that rounded timers do not add up.
            due_s = started_s + (position + 1) * gap_s
            if position + 1 == chunks:
                self.step(events, position + 1, entry, started_s)
            else:
                self.timer = self.loop.call_at(due_s, self.step, events, position + 1, entry, started_s)
            return
        entry["first_s"] = entry["first_s"] or time.monotonic()
        entry["last_s"] = time.monotonic()
        transport.write(events[position] if position else HEAD + events[0])
        if position < chunks:
            self.loop.call_soon(self.step, events, position + 1, entry, started_s)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM, then write the record."""
    mock = Mock(arguments)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Stream(mock), "127.0.0.1", arguments.port, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await stop.wait()
    print(json.dumps(mock.record), flush=True)


def main() -> None:
    """Runs the server."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=512)
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--gap-ms", type=float, default=5.0)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
