"""What a load client costs, and how wrong it is: ours, its peers and the least that Python can do, side by side.

    .venv/bin/python -m bench.replay.run                      # or `make bench-replay`

One cheap server (`server.py`) on one core, each client with all its processes on another, one after the other in
turns. The truth is the server's own record. Per client and scenario, medians of the repeats:

  whole, run     CPU (user and system, all processes) per streamed event; `run` leaves out what was used before the
                 first request arrived
  TTFT error     reported minus the server's own: from the arrival of the request to the sending of the first event
  TPOT error     the same for the time per token
  schedule       open loop: arrival of each request at the server against the steady beat that was asked for, the
                 earliest counting as on time

Exits with 1 if one of our bars is missed.
"""

import argparse
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import numpy.typing as npt

from bench.replay.clients import CLIENTS, HERE, ROOT, Client, Scenario, Seen
from bench.replay.cpu_time import Sampler

SCENARIOS = (
    Scenario("S1 64 streams, 5 ms", requests=256, chunks=512, gap_ms=5, concurrency=64),
    Scenario("S2 200 requests/s", requests=2000, chunks=16, gap_ms=5, rate=200),
    Scenario("S3 128 streams, full speed", requests=512, chunks=512, gap_ms=0, concurrency=128),
    Scenario("S4 4 tokens an event", requests=64, chunks=128, gap_ms=20, tokens_per_chunk=4, concurrency=16),
)
VLLM_EXTRA = ROOT / "demo/build/bench-replay"
"""Pandas, which `vllm bench serve` needs for its custom dataset; `make bench-replay` puts it there."""

SERVER_CORE, CLIENT_CORE = "0", "1"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a client needed: when it started, CPU of all its processes, its largest resident size."""

    started_s: float
    cpu_s: float
    rss_mb: float
    sampler: Sampler


@dataclass(frozen=True, slots=True)
class Row:
    """One run of one client."""

    whole_us: float
    run_us: float
    chunks_per_s: float
    requests_per_s: float
    answered: int
    ttft_error_ms: tuple[float, ...]
    tpot_error_us: tuple[float, ...]
    schedule_ms: tuple[float, ...]
    first_after_s: float
    rss_mb: float
    own: str
    own_lag_ms: float


def main() -> int:
    """Runs everything and prints a table for each scenario."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scenarios", nargs="+", default=["S1", "S2", "S3", "S4"])
    parser.add_argument("--clients", nargs="+", default=["tune", "vllm", "evalscope", "bare"], help="by first word")
    parser.add_argument("--evalscope", type=Path, help="environment in which evalscope is installed; skipped without")
    arguments = parser.parse_args()
    clients = [
        client
        for client in CLIENTS
        if client.name.split()[0] in arguments.clients and _there(client, arguments.evalscope)
    ]
    verdicts = []
    for scenario in SCENARIOS:
        if scenario.name.split()[0] in arguments.scenarios:
            rows: dict[str, list[Row]] = {client.name: [] for client in clients}
            for _ in range(arguments.repeats):
                for client in clients:
                    rows[client.name].append(run(client, scenario, arguments.evalscope))
            report(scenario, rows)
            verdicts += judge(scenario, rows)
    for text, held in verdicts:
        print(f"{'held  ' if held else 'MISSED'}  {text}")
    return 0 if all(held for _, held in verdicts) else 1


def _there(client: Client, evalscope: Path | None) -> bool:
    missing = (client.name.startswith("evalscope") and evalscope is None) or (
        client.name.startswith("vllm") and not ((ROOT / ".engine/bin/vllm").exists() and VLLM_EXTRA.exists())
    )
    if missing:
        print(f"{client.name}: skipped, it is not installed here")
    return not missing


def run(client: Client, scenario: Scenario, evalscope: Path | None) -> Row:
    """One client against a fresh server."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server_command = [
            *["taskset", "-c", SERVER_CORE, sys.executable, str(HERE / "server.py"), "--chunks", str(scenario.chunks)],
            *["--gap-ms", str(scenario.gap_ms), "--tokens-per-chunk", str(scenario.tokens_per_chunk)],
        ]
        with subprocess.Popen(server_command, stdout=subprocess.PIPE, text=True) as server:
            said = cast("TextIO", server.stdout)
            try:
                port = json.loads(said.readline())["port"]
                command = client.command(scenario, port, directory)
                if command[0] == "evalscope" and evalscope is not None:
                    command[0] = str(evalscope / "bin/evalscope")
                spent = _run_client(command, directory, said)
            finally:
                server.terminate()
            record = json.loads(said.read().removeprefix("first\n"))
        return _row(scenario, record, client.seen(directory), spent, client.own(directory))


def _run_client(command: list[str], directory: Path, server_says: TextIO) -> Spent:
    """Run a client to its end."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    environment = {**os.environ, **offline, "PYTHONPATH": f"{ROOT}:{VLLM_EXTRA}"}
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        started_s = time.monotonic()
        process = subprocess.Popen(["taskset", "-c", CLIENT_CORE, *command], stdout=out, stderr=err, env=environment)
        sampler = Sampler(process.pid)
        sampler.start()
        while _is_running(process.pid) and not select.select([server_says], [], [], 0.1)[0]:
            pass  # until the first request has arrived
        sampler.ended.set()
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        words = (directory / "stderr").read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {words}")
    return Spent(started_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, sampler)


def _is_running(pid: int) -> bool:
    """Without taking its exit status, which comes with its CPU time."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _row(scenario: Scenario, record: list[dict[str, float]], seen: dict[int, Seen], spent: Spent, own: str) -> Row:
    entries = {int(entry["request"]): entry for entry in record if entry["last_s"]}
    chunks = len(entries) * scenario.chunks
    arrived = [entry["arrived_s"] for entry in entries.values()]
    length_s = max(entry["last_s"] for entry in entries.values()) - min(arrived)
    tokens = scenario.chunks * scenario.tokens_per_chunk
    ttft, tpot = [], []
    for number, entry in entries.items():
        told = seen.get(number, Seen(None, None))
        if told.ttft_s is not None:
            ttft.append((told.ttft_s - (entry["first_s"] - entry["arrived_s"])) * 1e3)
        if told.tpot_s is not None:
            tpot.append((told.tpot_s - (entry["last_s"] - entry["first_s"]) / (tokens - 1)) * 1e6)
    late = [0.0]
    if scenario.rate is not None:
        offsets_s = [entry["arrived_s"] - number / scenario.rate for number, entry in entries.items()]
        late = [(offset_s - min(offsets_s)) * 1e3 for offset_s in offsets_s]
    return Row(
        whole_us=spent.cpu_s / chunks * 1e6,
        run_us=(spent.cpu_s - spent.sampler.at(min(arrived))) / chunks * 1e6,
        chunks_per_s=chunks / length_s,
        requests_per_s=(len(entries) - 1) / (max(arrived) - min(arrived)),
        answered=len(seen),
        ttft_error_ms=(statistics.fmean(ttft), *_quantiles(np.abs(ttft), (0.99, 1.0))) if ttft else (math.nan,) * 3,
        tpot_error_us=(statistics.fmean(tpot), float(np.abs(tpot).max())) if tpot else (math.nan,) * 2,
        schedule_ms=_quantiles(late, (0.5, 0.99, 1.0)),
        first_after_s=min(arrived) - spent.started_s,
        rss_mb=spent.rss_mb,
        own=own,
        own_lag_ms=float(own.rpartition("p99 ")[2].removesuffix(" ms")) if "send lag" in own else math.nan,
    )


def _quantiles(values: "Sequence[float] | npt.NDArray[np.float64]", shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(np.asarray(values), shares))


def report(scenario: Scenario, rows: dict[str, list[Row]]) -> None:
    """Print one scenario."""
    repeats = max(map(len, rows.values()))
    print(f"\n{scenario.name}: {scenario.requests} requests of {scenario.chunks} events, medians of {repeats}")
    widths = (18, 9, 8, 10, 8, 9, 28, 24, 27, 8, 6)
    heads = ("client", "whole us", "run us", "events/s", "req/s", "answered", "TTFT err mean/p99/max ms")
    _line((*heads, "TPOT err mean/max us", "schedule p50/p99/max ms", "first s", "MB"), widths)
    for name, runs in rows.items():
        m = {
            field: _median([getattr(row, field) for row in runs])
            for field in Row.__slots__
            if not field.startswith("own")
        }
        ttft, tpot, late = (
            " / ".join(f"{value:.2f}" for value in m[key]) for key in ("ttft_error_ms", "tpot_error_us", "schedule_ms")
        )
        figures = [f"{m[key]:.1f}" for key in ("whole_us", "run_us", "chunks_per_s", "requests_per_s", "answered")]
        ends = (f"{m['first_after_s']:.2f}", f"{m['rss_mb']:.0f}")
        _line((name, *figures, ttft, tpot, late if scenario.rate else "-", *ends), widths)
        if runs[-1].own:
            print(f"{'':18}{runs[-1].own}")


def _line(cells: Sequence[str], widths: Sequence[int]) -> None:
    print(
        cells[0].ljust(widths[0])
        + "".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    )


def _median(values: list[Any]) -> Any:
    if isinstance(values[0], tuple):
        return tuple(statistics.median(column) for column in zip(*values, strict=True))
    return statistics.median(values)


def judge(scenario: Scenario, rows: dict[str, list[Row]]) -> list[tuple[str, bool]]:
    """Our bars in this scenario."""
    mine, peers = rows.get("tune replay"), [name for name in rows if name.split()[0] in ("vllm", "evalscope")]
    if not mine:
        return []
    verdicts = [
        (
            f"{scenario.name}: every request answered and accounted for",
            all(r.answered == scenario.requests for r in mine),
        )
    ]

    def median(name: str, field: str) -> float:
        return float(statistics.median(getattr(row, field) for row in rows[name]))

    if scenario.name.startswith("S1") and peers:
        best_run, best_whole = (min(median(name, field) for name in peers) for field in ("run_us", "whole_us"))
        run_us, whole_us = median("tune replay", "run_us"), median("tune replay", "whole_us")
        verdicts += [
            (f"S1: {run_us:.1f} us an event is at most half of the best peer's {best_run:.1f}", run_us <= best_run / 2),
            (
                f"S1: {whole_us:.1f} us with start-up is at most a quarter of the best peer's {best_whole:.1f}",
                whole_us <= best_whole / 4,
            ),
        ]
    if scenario.name.startswith("S1"):
        p99 = statistics.median(row.ttft_error_ms[1] for row in mine)
        verdicts.append((f"S1: TTFT error p99 {p99:.2f} ms is under 5 ms", p99 < 5))
    if scenario.name.startswith("S2"):
        # Its own: what the server saw includes how late the server was, see the bare reader's.
        p99 = statistics.median(row.own_lag_ms for row in mine)
        verdicts.append((f"S2: lag behind the schedule p99 {p99:.2f} ms is under 2 ms", p99 < 2))
    if scenario.name.startswith("S4"):
        worst = statistics.median(row.tpot_error_us[1] for row in mine)
        verdicts.append((f"S4: TPOT is off by {worst:.1f} us of 5,000 at most with 4 tokens an event", worst < 50))
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
