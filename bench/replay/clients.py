"""The clients that `bench/replay/run.py` compares: how each is started, and where it says what it saw."""

import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TOKENIZER = ROOT / "demo/models/target"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load against one way of answering."""

    name: str
    requests: int
    chunks: int
    gap_ms: float
    tokens_per_chunk: int = 1
    concurrency: int | None = None
    rate: float | None = None

    @property
    def load(self) -> str:
        """As the tuner writes it."""
        return f"concurrency={self.concurrency}" if self.concurrency else f"rate={self.rate:g}:cv=0"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client reported of one request, seconds; None where it does not."""

    ttft_s: float | None
    tpot_s: float | None


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its command, and its report by request number; `own` is its own figures, as text."""

    name: str
    command: Callable[[Scenario, int, Path], list[str]]
    seen: Callable[[Path], dict[int, Seen]]
    own: Callable[[Path], str] = lambda _: ""


def ours(scenario: Scenario, port: int, directory: Path) -> list[str]:
    """`tune replay` with all metrics."""
    workload = directory / "workload.jsonl"
    with workload.open("w", encoding="utf-8") as file:
        for number in range(scenario.requests):
            body = {"prompt": f"request {number:04d}", "max_tokens": scenario.chunks * scenario.tokens_per_chunk}
            file.write(json.dumps({"id": str(number), "endpoint": "/v1/completions", "body": body}) + "\n")
    url = f"http://127.0.0.1:{port}"
    report = ["--json", "--per-request", str(directory / "requests.jsonl")]
    return [
        sys.executable,
        "-m",
        "tuner",
        "replay",
        str(workload),
        "--url",
        url,
        "--model",
        "mock",
        "--load",
        scenario.load,
        *report,
    ]


def bare(scenario: Scenario, port: int, directory: Path) -> list[str]:
    """The limit."""
    del directory
    load = ["--concurrency", str(scenario.concurrency)] if scenario.concurrency else ["--rate", str(scenario.rate)]
    return [sys.executable, str(HERE / "bare.py"), "--port", str(port), "--prompts", str(scenario.requests), *load]


def vllm(scenario: Scenario, port: int, directory: Path) -> list[str]:
    """`vllm bench serve` of the engine's environment."""
    prompts = directory / "prompts.jsonl"
    with prompts.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": f"request {number:04d}"}) + "\n" for number in range(scenario.requests))
    load = (
        ["--max-concurrency", str(scenario.concurrency)]
        if scenario.concurrency
        else ["--request-rate", str(scenario.rate), "--burstiness", "1000000"]
    )
    return [
        *[str(ROOT / ".engine/bin/vllm"), "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions"],
        *["--base-url", f"http://127.0.0.1:{port}", "--model", "mock", "--tokenizer", str(TOKENIZER)],
        *["--dataset-name", "custom", "--dataset-path", str(prompts), "--skip-chat-template", "--disable-shuffle"],
        *[
            "--custom-output-len",
            str(scenario.chunks * scenario.tokens_per_chunk),
            "--num-prompts",
            str(scenario.requests),
        ],
        *["--disable-tqdm", "--save-result", "--save-detailed", "--result-dir", str(directory)],
        *["--result-filename", "vllm.json", *load],
    ]


def evalscope(scenario: Scenario, port: int, directory: Path) -> list[str]:
    """`evalscope perf`, from an environment that --evalscope names."""
    prompts = directory / "prompts.txt"
    prompts.write_text("".join(f"request {number:04d}\n" for number in range(scenario.requests)), encoding="utf-8")
    load = (
        ["--parallel", str(scenario.concurrency)]
        if scenario.concurrency
        else ["--rate", str(scenario.rate), "--open-loop"]
    )
    return [
        *[
            "evalscope",
            "perf",
            "--url",
            f"http://127.0.0.1:{port}/v1/completions",
            "--model",
            "mock",
            "--api",
            "openai",
        ],
        *["--dataset", "line_by_line", "--dataset-path", str(prompts), "--number", str(scenario.requests)],
        *["--max-tokens", str(scenario.chunks * scenario.tokens_per_chunk), "--tokenizer-path", str(TOKENIZER)],
        *["--outputs-dir", str(directory), "--no-timestamp", "--no-test-connection", "--stream", *load],
    ]


def seen_lines(directory: Path) -> dict[int, Seen]:
    """From lines of JSON, ours or the bare reader's."""
    path = directory / "requests.jsonl"
    lines = (path if path.exists() else directory / "stdout").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return {int(entry["id"]): Seen(entry["ttft_s"], entry["tpot_s"]) for entry in entries if entry["error"] is None}


def seen_vllm(directory: Path) -> dict[int, Seen]:
    """From --save-detailed, which is in the order of the prompts."""
    found = json.loads((directory / "vllm.json").read_text(encoding="utf-8"))
    rows = zip(found["ttfts"], found["itls"], found["output_lens"], found["errors"], strict=True)
    return {
        number: Seen(ttft_s, sum(itl_s) / (tokens - 1) if tokens > 1 else None)
        for number, (ttft_s, itl_s, tokens, error) in enumerate(rows)
        if not error
    }


def seen_evalscope(directory: Path) -> dict[int, Seen]:
    """From its database."""
    (path,) = directory.rglob("benchmark_data.db")
    seen = {}
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "select request, first_chunk_latency, time_per_output_token from result where success = 1"
        )
        for request, ttft_s, tpot_s in rows:
            digits = request.partition("request ")[2][:4]
            if digits.isdigit():
                seen[int(digits)] = Seen(ttft_s, tpot_s)
    return seen


def own_figures(directory: Path) -> str:
    """What `tune replay` says of its own punctuality."""
    (report,) = json.loads((directory / "stdout").read_text(encoding="utf-8"))
    m, valid = report["metrics"], "valid" if report["valid"] else f"INVALID: {report['problems'][0]}"
    lag = (
        f"send lag p50 {m['send_lag_p50_s'] * 1e3:.2f} p99 {m['send_lag_p99_s'] * 1e3:.2f} ms"
        if "send_lag_p50_s" in m
        else ""
    )
    streaming_us = report["client_cpu_s"] / (m["completion_tokens"] / m["tokens_per_chunk"]) * 1e6
    return (
        f"{valid}, {report['accounting']['completed']} completed, {streaming_us:.1f} us an event while streaming, {lag}"
    )


CLIENTS = (
    Client("tune replay", ours, seen_lines, own_figures),
    Client("vllm bench serve", vllm, seen_vllm),
    Client("evalscope perf", evalscope, seen_evalscope),
    Client("bare reader", bare, seen_lines),
)
