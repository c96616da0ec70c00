#!/usr/bin/env python3
"""How much a sample of a recording differs from the whole: the table of docs/inspect.md, or that of a file of yours.

.venv/bin/python bench/sample_difference.py                     # 18 made recordings of 4000 requests, two minutes
.venv/bin/python bench/sample_difference.py api_traffic.jsonl   # six draws of a file
"""

import argparse
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import orjson

from workloads import Traffic, inspect_stream, inspect_traffic, read_sample, stream_requests

LETTERS = "abcdefghijkl "
SIZES = (100, 200, 500, 1000)
SEEDS = range(6)


def main() -> None:
    """Prints the largest differences for each size of sample."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, help="a recording; made ones by default")
    arguments = parser.parse_args()
    worst: dict[int, tuple[float, ...]] = {}
    with tempfile.TemporaryDirectory() as directory:
        paths = [arguments.file] * len(SEEDS) if arguments.file else made(Path(directory))
        for seed, path in enumerate(paths):
            opened = partial(stream_requests, path)
            whole = inspect_stream(opened).whole
            for size in SIZES:
                kept, _ = read_sample(opened, size, seed=seed)
                found = differences(whole, inspect_traffic(kept.requests, kept).whole)
                worst[size] = tuple(map(max, worst.get(size, (0.0,) * len(found)), found))
    print("N     hit rate 16   hit rate 640   variation of gaps   rate")
    for size, (hit_16, hit_640, variation, rate) in worst.items():
        print(f"{size:<5} {hit_16:<13.3f} {hit_640:<14.3f} {variation:<19.1%} {rate:.1%}")


def differences(whole: Traffic, sample: Traffic) -> tuple[float, ...]:
    """Of the hit rates at 16 and 640 tokens as they are, of burstiness and rate in relation to the whole's."""
    hits = [{each.kv_block_size: each.hit_rate for each in part.prefix_sharing.hit_rates} for part in (whole, sample)]
    times = [
        ((part.arrivals.gap_cv, part.arrivals.rate) if part.arrivals else (None, None)) for part in (whole, sample)
    ]
    ratios = [after / before - 1 if before and after else 0.0 for before, after in zip(*times, strict=True)]
    return (*(abs(hits[1][size] - hits[0][size]) for size in (16, 640)), *map(abs, ratios))


def made(directory: Path) -> Iterator[Path]:
    """Recordings with sessions that start in bursts, most behind few of many shared prompts, with growing turns."""
    for seed in SEEDS:
        for burstiness, systems in ((1.0, 5), (3.0, 20), (2.0, 100)):
            path = directory / "made.jsonl"
            path.write_bytes(b"".join(recording(random.Random(seed), burstiness, systems)))
            yield path


def recording(source: random.Random, burstiness: float, systems: int) -> Iterator[bytes]:
    """One recording as lines of a file."""

    def text(least: int, most: int) -> str:
        return "".join(source.choices(LETTERS, k=source.randint(least, most)))

    shared = [f"system {number} {text(500, 4000)}" for number in range(systems)]
    shape = burstiness**-2
    turns: list[tuple[float, str, str, str]] = []
    now_s, session = 0.0, 0
    while len(turns) < 4000:
        now_s += source.gammavariate(shape, 1 / shape)
        group = min(int(source.paretovariate(1)) - 1, systems - 1)
        prompt, at_s = f"{shared[group]} {session} {text(50, 400)}", now_s
        for _ in range(source.choice((1, 1, 1, 2, 4))):
            turns.append((at_s, f"s{session}", prompt, f"route{group % 3}"))
            at_s += source.expovariate(1 / 8)
            prompt += text(50, 400)
        session += 1
    for at_s, name, prompt, route in sorted(turns):
        row = {"timestamp_s": at_s, "route": route, "session": name, "body": {"prompt": prompt}}
        yield orjson.dumps(row) + b"\n"


if __name__ == "__main__":
    main()
