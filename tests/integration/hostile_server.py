"""Servers that mean harm: an answer without end, a header of a megabyte, a bomb, a drip, figures that are none.

At one path a `HostileServer` does what its mode says; everywhere else it answers as a vLLM would. Raw sockets, because
no HTTP library would send most of this.
"""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Self

TEN_GB = 10 * 2**30
PIECE = b"a" * 65536
COMPLETION = {"choices": [{"text": " a"}], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}


def metrics(tokens: str, running: str) -> str:
    """What a reader of vLLM's metrics insists on."""
    named = {"prompt_tokens_total": tokens, "generation_tokens_total": tokens, "num_requests_running": running}
    return "".join(f"vllm:{name} {value}\n" for name, value in named.items())


@cache
def bomb() -> bytes:
    """1 GB of zeros in about 1 MB."""
    return gzip.compress(bytes(2**20), 1) * 1024


def _flood(_head: str) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % TEN_GB
    for _ in range(TEN_GB // len(PIECE)):
        yield PIECE


def _long_header(_head: str) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nX-Long: " + b"h" * 2**20 + b"\r\nContent-Length: 2\r\n\r\n{}"


def _endless_header(_head: str) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nX-Long: "
    for _ in range(TEN_GB // len(PIECE)):
        yield PIECE


def _drip(_head: str) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000000\r\n\r\n"
    while True:
        time.sleep(0.2)
        yield b" "


def _no_newline(_head: str) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
    while True:
        yield PIECE


def _endless_text(_head: str) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    event = b"data: " + json.dumps({"choices": [{"index": 0, "text": "t" * 60000}]}).encode() + b"\n\n"
    while True:
        yield event


def _gzip_bomb(_head: str) -> Iterator[bytes]:
    yield (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n" % len(bomb())
    )
    yield bomb()


def _quote(head: str) -> Iterator[bytes]:
    yield _whole(500, f"you sent {head}")


def _nested(_head: str) -> Iterator[bytes]:
    yield _whole(200, "[" * 200_000)


def _not_a_number(_head: str) -> Iterator[bytes]:
    yield _whole(200, metrics("NaN", "NaN"))


def _far_position(_head: str) -> Iterator[bytes]:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    more = f'# TYPE {name} gauge\n{name}{{position="{10**12}"}} 1\n'
    yield _whole(200, metrics("1", "0") + more)


def _broken_figures(_head: str) -> Iterator[bytes]:
    yield _whole(200, 'vllm:num_requests_running 1.2.3e+e\nvllm:prompt_tokens_total{a="\\\n{{}} = 1\n')


MODES: dict[str, Callable[[str], Iterator[bytes]]] = {
    "flood": _flood,
    "long_header": _long_header,
    "endless_header": _endless_header,
    "drip": _drip,
    "no_newline": _no_newline,
    "endless_text": _endless_text,
    "gzip_bomb": _gzip_bomb,
    "quote": _quote,
    "nested": _nested,
    "not_a_number": _not_a_number,
    "far_position": _far_position,
    "broken_figures": _broken_figures,
}
METRICS_MODES = ("not_a_number", "far_position", "broken_figures")


class HostileServer:
    """Listens on loopback until its context is left.

    Args:
        mode: One of `MODES`, or ``redirect``, which sends the client to `elsewhere`.
        path: Where it does so; a prefix.
        elsewhere: URL that nobody should follow.

    Attributes:
        url: Its root.
        requests: First lines of the requests that came.
    """

    def __init__(self, mode: str, path: str = "/", elsewhere: str = "") -> None:
        self._answer = MODES.get(mode) or (lambda _head: iter([_redirect(elsewhere)]))
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        with suppress(OSError), connection:  # the client has had enough, which is what is wanted
            head = _read_request(connection)
            path = head.split(" ")[1] if head else ""
            self.requests.append(head.partition("\r\n")[0])
            for piece in self._answer(head) if path.startswith(self._path) else (_good(path),):
                connection.sendall(piece)


def _read_request(connection: socket.socket) -> str:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return ""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while len(body) < sum(lengths):
        body += connection.recv(65536)
    return head.decode("latin-1")


def _good(path: str) -> bytes:
    answers = {
        "/health": "",
        "/version": json.dumps({"version": "0.32.0"}),
        "/v1/models": json.dumps({"data": [{"id": "tiny"}]}),
        "/v1/completions": json.dumps(COMPLETION),
        "/metrics": metrics("1", "0"),
        "/server_info": "{}",
    }
    found = answers.get(path.partition("?")[0])
    return _whole(404 if found is None else 200, found or "")


def _redirect(url: str) -> bytes:
    return f"HTTP/1.1 307 Elsewhere\r\nLocation: {url}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


def _whole(status: int, body: str) -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data
