"""A real HTTP server, in a thread, that answers with the very bytes that a test asked for, and keeps what it got."""

import asyncio
import gzip
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


Write = Callable[[bytes], Awaitable[None]]


@dataclass(slots=True)
class Upstream:
    """Answers a request by its path, or by the text that its prompt begins with; see `ANSWERS`."""

    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    released: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    client_left: threading.Event = field(default_factory=threading.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request = await _read(head, reader)
                self.seen.append(request)
                await self._answer(request, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, request: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behaviour = request.target.strip("/").replace("/", "_")
        if behaviour not in ANSWERS:
            behaviour = json.loads(request.body or b"{}").get("user", "whole")
        if behaviour == "step_by_step":
            await self._step_by_step(writer)
        elif behaviour == "endless":
            await self._endless(reader, writer)
        elif behaviour == "silent":
            await reader.read(1)
            self.client_left.set()
        else:
            answer = ANSWERS[behaviour]
            writer.write(answer if request.method != "HEAD" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
            await writer.drain()
        if behaviour in ("broken_off", "until_close"):
            writer.close()

    async def _step_by_step(self, writer: asyncio.StreamWriter) -> None:
        """An event, and the next one only when the test has released it."""
        writer.write(SSE_HEAD)
        for number in range(3):
            writer.write(chunk(event(f"step {number}")))
            await writer.drain()
            assert await asyncio.to_thread(self.released.acquire, timeout=5)
        writer.write(b"0\r\n\r\n")

    async def _endless(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Events until the other side goes away."""
        gone = asyncio.ensure_future(reader.read(1))
        writer.write(SSE_HEAD)
        while not gone.done():
            writer.write(chunk(event("more")))
            await asyncio.sleep(0.01)
        self.client_left.set()
        raise ConnectionResetError


async def _read(head: bytes, reader: asyncio.StreamReader) -> Seen:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    known = {name.lower(): value for name, value in headers}
    if known.get("transfer-encoding") != "chunked":
        return Seen(method, target, headers, await reader.readexactly(int(known.get("content-length", 0))))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return Seen(method, target, headers, body)


def event(text: str, *, finish: str | None = None, **more: Any) -> bytes:
    document = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}
    return b"data: %s\n\n" % json.dumps(document, ensure_ascii=False).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON_ANSWER = json.dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Grüße"}, "finish_reason": "length"}],
        "usage": {**USAGE, "total_tokens": 12},
    },
    ensure_ascii=False,
).encode()
STREAM = [
    event(""),
    event("Gr"),
    event("üße 你好"),
    event("!", finish="stop"),
    b"data: %s\n\n" % json.dumps({"choices": [], "usage": USAGE}).encode(),
    b"data: [DONE]\n\n",
]
JSON_TYPE = "Content-Type: application/json"
ANSWERS = {
    "whole": _whole(JSON_ANSWER, "date: Thu, 01 Jan 1970 00:00:00 GMT", "server: uvicorn", JSON_TYPE),
    "bare": _whole(JSON_ANSWER),
    "gzip": _whole(gzip.compress(JSON_ANSWER, mtime=0), JSON_TYPE, "Content-Encoding: gzip"),
    "damaged_gzip": _whole(b"\x1f\x8b but no more", JSON_TYPE, "Content-Encoding: gzip"),
    "cookies": _whole(b"x", "Set-Cookie: a=SECRET-COOKIE", "X-Odd:  spaced", "set-cookie: b=2; Path=/"),
    "refused": _whole(b'{"error": {"message": "no"}}', JSON_TYPE, "Retry-After: 3", status="429 Slow Down Please"),
    "failed": _whole(b"\xff\x00 not text", status="500 Internal Server Error"),
    "redirect": _whole(b"", "Location: http://127.0.0.1:1/elsewhere", status="307 Temporary Redirect"),
    "nothing": b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n",
    "unchanged": b"HTTP/1.1 304 Not Modified\r\nETag: abc\r\n\r\n",
    "until_close": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end",
    "stream": SSE_HEAD + b"".join(map(chunk, STREAM)) + b"0\r\n\r\n",
    "stream_gzip": SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    + b"".join(chunk(part) for part in [gzip.compress(b"".join(STREAM), mtime=0)])
    + b"0\r\n\r\n",
    "crlf_bytewise": SSE_HEAD
    + b"".join(chunk(bytes([byte])) for byte in b": hi\r\n\r\n" + b"".join(STREAM).replace(b"\n", b"\r\n"))
    + b"0\r\n\r\n",
    "large_events": SSE_HEAD
    + b"".join(chunk(event(f"{n}", finish="length" if n == 7 else None, logprobs="x" * 2**20)) for n in range(8))
    + chunk(STREAM[4])
    + b"0\r\n\r\n",
    "broken_off": SSE_HEAD + chunk(STREAM[1]) + b"ff\r\ndata: ",
}
"""Whole answers, head and all, by the name that a path or the body's field `user` gives."""
