"""Measures the demo pair in the real engine: speed, acceptance and unchanged outputs for several K.

Starts one engine after another (no other engine may run meanwhile), sends held-out prompts of each kind one at a time,
and prints a table; `--json` keeps the figures. Run from the repository root with the engine environment's Python:

    python -m demo.pair.measure --models demo/models

Only the standard library is used here; the engine is a command.
"""

import argparse
import hashlib
import itertools
import json
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from demo.pair.corpus import KINDS, examples, exchange, system_message
from demo.pair.engine import RunningEngine, start_engine

SEED = 101
"""Not the sample traffic's seed: held-out prompts again, but others."""
PROMPTS = {"code": 32, "story": 16, "support": 24}
WARM_UP = 3
BODIES: dict[str, dict[str, Any]] = {
    "code": {"max_tokens": 128, "temperature": 0.0},
    "story": {"max_tokens": 180, "temperature": 0.8, "top_p": 0.95, "seed": 5},
    "support": {"max_tokens": 48, "temperature": 0.0},
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one engine did on the prompts of one kind."""

    k: int
    """Speculative tokens per draft; 0 is no speculation."""
    kind: str
    concurrency: int
    output_tokens: int
    tokens_per_s: float
    acceptance_length: float
    acceptance_rate: float
    position_acceptance: tuple[float, ...]
    """Accepted at position 1, 2, ... per draft."""
    digest: str
    """Over all output texts in order."""


def _bodies(kind: str) -> list[dict[str, Any]]:
    system = [system_message()] if kind == "support" else []
    found = itertools.islice(examples(kind, SEED, held_out=True), PROMPTS[kind] + WARM_UP)
    return [BODIES[kind] | {"messages": [*system, *exchange(example)[:1]]} for example in found]


def _measure(engine: RunningEngine, k: int, kind: str, concurrency: int) -> Row:
    bodies = _bodies(kind)
    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(engine.chat, bodies[:WARM_UP] * concurrency))
        before, start = engine.counters(), time.monotonic()
        answers = list(pool.map(engine.chat, bodies[WARM_UP:]))
        seconds = time.monotonic() - start
    after = engine.counters()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    drafts = grown.get("drafts", 0.0)
    accepted = grown.get("accepted", 0.0)
    tokens = sum(answer.tokens for answer in answers)
    return Row(
        k=k,
        kind=kind,
        concurrency=concurrency,
        output_tokens=tokens,
        tokens_per_s=tokens / seconds,
        acceptance_length=1 + accepted / drafts if drafts else 1.0,
        acceptance_rate=accepted / grown["drafted"] if drafts else 0.0,
        position_acceptance=tuple(grown[f"position_{at}"] / drafts for at in range(k)) if drafts else (),
        digest=hashlib.sha256("\0".join(answer.text for answer in answers).encode()).hexdigest()[:12],
    )


def _show(rows: Sequence[Row]) -> None:
    plain = {(row.kind, row.concurrency): row for row in rows if row.k == 0}
    print("| kind | concurrency | K | tok/s | gain | acceptance length | acceptance rate | output | per position |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda one: (one.kind, one.concurrency, one.k)):
        base = plain.get((row.kind, row.concurrency))
        gain = f"{row.tokens_per_s / base.tokens_per_s:.2f}" if base else "-"
        same = (
            "-"
            if base is None or BODIES[row.kind]["temperature"]
            else ("same" if row.digest == base.digest else "DIFFERS")
        )
        positions = " ".join(f"{share:.2f}" for share in row.position_acceptance)
        cells = (row.kind, row.concurrency, row.k, f"{row.tokens_per_s:.0f}", gain, f"{row.acceptance_length:.2f}")
        print("| " + " | ".join(map(str, (*cells, f"{row.acceptance_rate:.2f}", same, positions))) + " |")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main() -> None:
    """Measure every K on every kind and print the table."""
    parser = argparse.ArgumentParser(description="Measure the demo pair in the real engine.")
    parser.add_argument("--models", type=Path, default=Path("demo/models"))
    parser.add_argument("--k", type=_numbers, default=(0, 1, 3, 5, 7, 11, 15), help="0 is no speculation")
    parser.add_argument("--concurrency", type=_numbers, default=(1,))
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=KINDS)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--log", type=Path, default=Path("demo/build/engine.log"))
    parsed = parser.parse_args()
    # a plain kill must take the engine along: SystemExit runs the clean-up, the default action does not
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    rows: list[Row] = []
    for k in parsed.k:
        with start_engine(parsed.models, k, parsed.log) as engine:
            for kind, concurrency in itertools.product(parsed.kinds, parsed.concurrency):
                rows.append(_measure(engine, k, kind, concurrency))
                print(rows[-1], flush=True)
        if parsed.json:
            parsed.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    _show(rows)


if __name__ == "__main__":
    main()
