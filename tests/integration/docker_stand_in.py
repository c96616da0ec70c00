"""A little docker: a daemon that runs "containers" as processes of its own, and the command line that talks to it.

The processes belong to the daemon and not to whoever typed `docker run`, as with the real one, so what a runner leaves
behind stays. Understands what `runners.container` uses, refuses everything else, and writes down each command line.
Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

RUN = argparse.ArgumentParser(prog="docker run")
RUN.add_argument("--rm", action="store_true", required=True)
for _option in ("name", "cidfile", "env-file", "publish", "shm-size"):
    RUN.add_argument(f"--{_option}", required=True)
RUN.add_argument("--gpus")
RUN.add_argument("--label", action="append", default=[])
RUN.add_argument("--volume", action="append", default=[])
RUN.add_argument("image")
RUN.add_argument("words", nargs=argparse.REMAINDER)
KNOWN_IMAGE, SIMULATED_IMAGE = "engine:1", "simulated:v0.32.0"
ENTRY_POINTS = {
    KNOWN_IMAGE: [str(Path(__file__).with_name("scripted_engine.py"))],
    SIMULATED_IMAGE: ["-P", str(Path(__file__).parents[2] / "runners" / "simulated" / "__main__.py"), "serve"],
}


@dataclass
class Container:
    """One process of the daemon's."""

    id: str
    labels: list[str]
    process: subprocess.Popen[bytes]


class Daemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Knows the containers."""

    daemon_threads = True
    containers: dict[str, Container]


class Connection(socketserver.StreamRequestHandler):
    """One command line, answered with lines of JSON: output, then the exit code."""

    server: Daemon

    def handle(self) -> None:
        command, *words = json.loads(self.rfile.readline())
        code = {"run": self.run, "stop": self.stop, "rm": self.rm, "ps": self.ps}[command](words)
        self.say(code=code)

    def say(self, **line: Any) -> None:
        try:
            self.wfile.write(json.dumps(line).encode() + b"\n")
        except BrokenPipeError:
            return  # the one who asked is gone; the container is not

    def run(self, words: list[str]) -> int:
        given = RUN.parse_args(words)
        if given.image not in ENTRY_POINTS:
            self.say(err=f"docker: Error response from daemon: pull access denied for {given.image}, not found.\n")
            return 125
        lines = Path(given.env_file).read_text(encoding="utf-8").splitlines()
        env = dict(line.split("=", 1) for line in lines) | {"PATH": os.environ["PATH"]}
        inside = given.words[: given.words.index("--host")]
        port = given.publish.split(":")[1]
        process = subprocess.Popen(
            [sys.executable, *ENTRY_POINTS[given.image], *inside, "--host", "127.0.0.1", "--port", port],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        container = Container(secrets.token_hex(32), given.label, process)
        self.server.containers[container.id] = container
        Path(given.cidfile).write_text(container.id, encoding="ascii")
        output: IO[bytes] = process.stdout  # type: ignore[assignment] # PIPE was asked for
        for line in output:
            self.say(err=line.decode())
        code = process.wait()
        output.close()
        self.server.containers.pop(container.id, None)
        return 128 - code if code < 0 else code

    def stop(self, words: list[str]) -> int:
        assert words[0] == "--time"
        container = self.server.containers.get(words[2])
        if container is None:
            return 1
        container.process.terminate()
        try:
            container.process.wait(float(words[1]))
        except subprocess.TimeoutExpired:
            container.process.kill()
        return 0

    def rm(self, words: list[str]) -> int:
        assert words[0] == "--force"
        for name in words[1:]:
            if container := self.server.containers.pop(name, None):
                container.process.kill()
                container.process.wait()
        return 0

    def ps(self, words: list[str]) -> int:
        assert words[:4] == ["--all", "--quiet", "--no-trunc", "--filter"]
        label = words[4].removeprefix("label=")
        for container in list(self.server.containers.values()):
            if label in {"", *container.labels}:
                self.say(out=container.id + "\n")
        return 0


def serve(path: str) -> int:
    """The daemon, until SIGTERM; its containers go with it."""
    with Daemon(path, Connection) as daemon:
        daemon.containers = {}
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=daemon.shutdown).start())
        daemon.serve_forever(poll_interval=0.05)
        for container in list(daemon.containers.values()):
            container.process.kill()
    return 0


def ask(path: str, words: list[str]) -> int:
    """The command line."""
    with Path(path).with_name("calls.jsonl").open("a", encoding="utf-8") as calls:
        calls.write(json.dumps(words) + "\n")
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            sys.stderr.write(f"Cannot connect to the Docker daemon at unix://{path}. Is the docker daemon running?\n")
            return 1
        connection.sendall(json.dumps(words).encode() + b"\n")
        for text in connection.makefile(encoding="utf-8"):
            line = json.loads(text)
            sys.stdout.write(line.get("out", ""))
            sys.stderr.write(line.get("err", ""))
            sys.stderr.flush()
            if "code" in line:
                return int(line["code"])
    return 125


class Docker:
    """The daemon and a `docker` to call it with, for a test."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.socket, self.calls_path = directory / "daemon.sock", directory / "calls.jsonl"
        self.command = directory / "docker"
        self.command.write_text(
            f'#!/bin/sh\nexec {sys.executable} -I -S {Path(__file__).resolve()} ask {self.socket} "$@"\n',
            encoding="utf-8",
        )
        self.command.chmod(0o755)
        self._daemon = subprocess.Popen([sys.executable, "-I", "-S", __file__, "serve", str(self.socket)])
        end = time.monotonic() + 10
        while not self.socket.exists() and time.monotonic() < end:
            time.sleep(0.01)

    def calls(self, command: str) -> list[list[str]]:
        """Arguments of every call of one command."""
        lines = self.calls_path.read_text(encoding="utf-8").splitlines()
        return [words[1:] for words in map(json.loads, lines) if words[0] == command]

    def end(self) -> None:
        """End the daemon and its containers."""
        self._daemon.terminate()
        self._daemon.wait(10)


if __name__ == "__main__":
    sys.exit(ask(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "ask" else serve(sys.argv[2]))
