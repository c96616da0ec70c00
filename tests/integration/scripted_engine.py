"""A little server with vLLM's API that does what its switches say: the engine of the runner's tests.

Run as a command by the tests, in the place of ``vllm serve``. Standard library only, so that it starts at once.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("--host", required=True)
OPTIONS.add_argument("--port", type=int, required=True)
OPTIONS.add_argument("--served-model-name", default="tiny")
OPTIONS.add_argument("--never-ready", action="store_true", help="/health answers 503")
OPTIONS.add_argument("--exit-with", type=int, help="write --last-words and exit before serving")
OPTIONS.add_argument("--last-words", default="")
OPTIONS.add_argument("--start-s", type=float, default=0.0)
OPTIONS.add_argument("--ignore-sigterm", action="store_true")
OPTIONS.add_argument("--grandchild", action="store_true", help="a grandchild in a session of its own")
OPTIONS.add_argument("--grandchild-ignores-sigterm", action="store_true")
OPTIONS.add_argument("--grandchild-forgets-environment", action="store_true", help="as setproctitle makes it look")
OPTIONS.add_argument("--any-key", action="store_true", help="accept every API key")
OPTIONS.add_argument("--no-tokens", action="store_true", help="completions end in HTTP 500")
OPTIONS.add_argument("--hang-completions", action="store_true")
OPTIONS.add_argument("--shared-memory", help="leave a segment of this name mapped")
OPTIONS.add_argument("--wrapper", action="store_true", help="serve from a child process, as a shell script would")
OPTIONS.add_argument("--stuck-requests", type=int, default=0, help="so many requests run for ever")
OPTIONS.add_argument("--lying-reset", action="store_true", help="say that the prefix cache was reset, and keep it")
OPTIONS.add_argument("--busy-resets", type=int, default=0, help="so many resets say no first")

_GRANDCHILD = "import signal,time,sys; {ignore}time.sleep(600)"


class State:
    """What the handler needs to know."""

    arguments: argparse.Namespace
    key = ""
    generated = 0
    resets = 0
    hits = 0
    cached: ClassVar[set[str]] = set()
    segment: mmap.mmap | None = None


class Handler(BaseHTTPRequestHandler):
    """vLLM's endpoints, as far as a runner uses them."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(503 if State.arguments.never_ready else 200, "")
        elif self.path == "/version":
            self._answer(200, {"version": "0.32.0+scripted"})
        elif self.path == "/v1/models":
            self._answer(200 if self._key_is_right() else 401, {"data": [{"id": State.arguments.served_model_name}]})
        elif self.path.startswith("/server_info"):
            self._answer(
                200, {"vllm_config": {"argv": sys.argv[1:], "cwd": str(Path.cwd())}, "environ": dict(os.environ)}
            )
        elif self.path == "/metrics":
            self._answer(200, metrics(State))
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/reset_prefix_cache":
            State.resets += 1
            if State.resets > State.arguments.busy_resets and not State.arguments.lying_reset:
                State.cached.clear()
            self._answer(200, {"success": State.resets > State.arguments.busy_resets})
        elif self.path != "/v1/completions":
            self._answer(404, {})
        elif not self._key_is_right():
            self._answer(401, {"error": "Unauthorized"})
        elif State.arguments.no_tokens:
            self._answer(500, {"error": "no tokens today"})
        elif State.arguments.hang_completions:
            time.sleep(600)
        else:
            State.generated += 4
            prompt = json.loads(body)["prompt"]
            State.hits += len(prompt) if prompt in State.cached else 0
            State.cached.add(prompt)
            self._answer(200, {"choices": [{"text": " a"}], "usage": {"prompt_tokens": 5, "completion_tokens": 4}})

    def log_message(self, *_arguments: Any) -> None:
        """Stay silent: the log belongs to the test."""

    def _key_is_right(self) -> bool:
        return bool(State.arguments.any_key) or self.headers.get("Authorization") == f"Bearer {State.key}"

    def _answer(self, status: int, body: object) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def metrics(state: type[State]) -> str:
    """The counters that vLLM always has."""
    label = 'engine="0",model_name="tiny"'
    return "".join(
        f"# TYPE {name} {kind}\n{name}{'_total' if kind == 'counter' else ''}{{{label}}} {value}\n"
        for name, kind, value in (
            ("vllm:prompt_tokens", "counter", 5),
            ("vllm:generation_tokens", "counter", state.generated),
            ("vllm:prefix_cache_hits", "counter", state.hits),
            ("vllm:num_requests_running", "gauge", state.arguments.stuck_requests),
        )
    )


def main() -> None:
    """Serve until told otherwise."""
    arguments = State.arguments = OPTIONS.parse_args()
    State.key = os.environ.get("VLLM_API_KEY", "")
    if arguments.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.wrapper:
        subprocess.run([sys.executable, *(word for word in sys.argv if word != "--wrapper")], check=False)
        return
    if arguments.grandchild or arguments.grandchild_ignores_sigterm:
        ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if arguments.grandchild_ignores_sigterm else ""
        env: dict[str, str] | None = {} if arguments.grandchild_forgets_environment else None
        subprocess.Popen([sys.executable, "-c", _GRANDCHILD.format(ignore=ignore)], start_new_session=True, env=env)
    if arguments.shared_memory:
        share(arguments.shared_memory)
    sys.stderr.write("(Worker pid=1) INFO 11-29 18:32:32 [cpu_model_runner.py:68] Starting to load model tiny...\n")
    time.sleep(arguments.start_s)
    if arguments.exit_with is not None:
        sys.stderr.write(arguments.last_words + "\n")
        sys.exit(arguments.exit_with)
    server = ThreadingHTTPServer((arguments.host, arguments.port), Handler, bind_and_activate=False)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.server_bind()
    server.server_activate()
    server.daemon_threads = True
    server.serve_forever()


def share(name: str) -> None:
    """Map a shared-memory segment and never unlink it, as a killed engine does."""
    with Path("/dev/shm", name).open("wb+") as file:  # noqa: S108 - it is shared memory
        file.truncate(4096)
        State.segment = mmap.mmap(file.fileno(), 4096)


if __name__ == "__main__":
    main()
