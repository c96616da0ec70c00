"""A recorder as users run it: a process of its own, spoken to over HTTP, ended by signals."""

import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}
CHAT = "/v1/chat/completions"


class Recording:
    """A running `tune record`."""

    def __init__(self, upstream: str, out: Path, *options: str, listen: str = "127.0.0.1:0") -> None:
        words = ["record", "--upstream", upstream, "--listen", listen, "--out", str(out), *options]
        self.out = out
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuner", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        self.url = next(word for word in self.said.split() if word.startswith("http://"))
        self.printed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)

    def writer(self) -> psutil.Process:
        """The process that writes."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it as an operator does; what it printed and said is kept. Returns its exit code."""
        self.process.send_signal(number)
        self.printed, said = self.process.communicate(timeout=30)
        self.said += said
        return self.process.returncode

    def records(self) -> list[dict[str, Any]]:
        """The records in the file."""
        return read_records(self.out)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records in a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a client can see of an answer, but for what belongs to its connection."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body_digest: str
    body_bytes: int


def ask(url: str, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    """Send a request and read its answer, undecoded."""
    connection = connect(url)
    try:
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        kept = [(name, value) for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP]
        return Answer(response.status, response.reason, kept, hashlib.sha256(data).hexdigest(), len(data))
    finally:
        connection.close()


def connect(url: str) -> http.client.HTTPConnection:
    """A connection that has not been used."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)


def chat(behaviour: str = "whole", text: str = "hello", **more: Any) -> dict[str, Any]:
    """A chat request's body."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], "user": behaviour, **more}


def mode(path: Path) -> int:
    """Permission bits."""
    return os.stat(path).st_mode & 0o777  # noqa: PTH116 - the same in one word
