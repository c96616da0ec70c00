"""Makes the simulated tables: every config of simulated.yaml, six conditions, on the simulated engine without HTTP.

    .venv/bin/python bench/grids/simulated.py               # all calibrations, a few minutes on one core
    .venv/bin/python bench/grids/simulated.py cliff fading

Two of the three calibrations beside this file break what the tuner's prediction assumes; each says how.
"""

import csv
import gzip
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.grids.table import COLUMNS, HERE, distinct_values, table_space
from runners.simulated.calibration import SHIPPED, Calibration, load_calibration
from runners.simulated.flags import parse_flags
from runners.simulated.offline import OfflineResult, simulate_closed_loop
from runners.simulated.setup import resolve
from search_spaces import ResolvedSpace, Scalar

CALIBRATIONS = {
    "default": SHIPPED / "default.yaml",
    "cpu-demo": SHIPPED / "cpu-demo.yaml",
    "published": SHIPPED / "published.yaml",
    "stairs": HERE / "calibrations/stairs.yaml",
    "fading": HERE / "calibrations/fading.yaml",
    "cliff": HERE / "calibrations/cliff.yaml",
}
BLOCKS = 8
# Concurrency -> requests of one measurement, a multiple of the blocks.
REQUESTS = {1: 24, 8: 64, 32: 128}
# Words of five letters are one token each. The rag profile shares its first part over all requests.
PREFIX_WORDS = {"published": 3400, "cpu-demo": 1150}


def bodies(profile: str, count: int, prefix_words: int) -> list[dict[str, Any]]:
    """Requests of one profile: short code prompts of their own, or one long document and a question each."""
    made = []
    for number in range(count):
        if profile == "code":
            text, tokens = f"def task{number}(value):\n" + " lines" * (40 + number % 7 * 12), 96
        else:
            text, tokens = " words" * (prefix_words + 11 * (number % 5)) + f" {number}" * 12, 48
        content = {"role": "user", "content": text}
        made.append({"messages": [content], "max_tokens": tokens, "min_tokens": tokens // 2, "temperature": 0.0})
    return made


def measure(space: ResolvedSpace, values: Mapping[str, Scalar], calibration: Calibration, name: str) -> list[list[str]]:
    """The rows of one config."""
    rows = []
    for profile in ("code", "rag"):
        for concurrency, count in REQUESTS.items():
            setup = resolve(parse_flags(list(space.serve_config(values).to_argv())), calibration)
            sent = bodies(profile, count, PREFIX_WORDS.get(name, 1800))
            result = simulate_closed_loop(setup, sent, concurrency)
            rows.append([json.dumps(values), f"{profile}/c{concurrency}", *figures(result, concurrency)])
    return rows


def figures(result: OfflineResult, concurrency: int) -> list[str]:
    """Four significant digits of what a real measurement would report."""
    sequences, counts = result.sequences, result.counts
    ttft_s = [(s.first_token_s or 0.0) - s.queued_s for s in sequences]
    tpot_s = [
        (end - (s.first_token_s or 0.0)) / max(1, s.emitted - 1) for s, end in zip(sequences, result.end_s, strict=True)
    ]
    numbers = [
        result.output_tok_s,
        sum(tpot_s) / len(tpot_s),
        sum(ttft_s) / len(ttft_s),
        result.mean_running,
        len(sequences),
        result.output_tokens,
        counts.cache_hits / counts.cache_queries if counts.cache_queries else None,
        result.acceptance_length,
        result.duration_s,
    ]
    size = len(sequences) // BLOCKS
    blocks = []
    for first in range(0, size * BLOCKS, size):
        own = range(first, first + size)
        busy_s = sum(result.end_s[i] - sequences[i].queued_s for i in own)
        blocks.append(concurrency * sum(sequences[i].emitted for i in own) / busy_s)
    accepted = [count / counts.drafts for count in counts.accepted_at] if counts.drafts else []
    return [
        *("" if number is None else f"{number:.4g}" for number in numbers),
        "|".join(f"{value:.4g}" for value in blocks),
        "|".join(f"{share:.3f}" for share in accepted),
    ]


def write(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Equal bytes for equal rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:
        file.write(text.getvalue().encode())


def main() -> int:
    """Makes the tables that are named, or all."""
    for name in sys.argv[1:] or CALIBRATIONS:
        calibration, space = load_calibration(str(CALIBRATIONS[name])), table_space(name)
        rows: list[list[str]] = []
        configs = list(distinct_values(space))
        for values in configs:
            rows += measure(space, values, calibration, name)
        write(HERE / f"{name}.csv.gz", rows)
        print(f"{name}: {len(configs)} configs, {len(rows)} rows", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
