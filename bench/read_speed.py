"""How fast native traffic is read, next to bare orjson over the same lines, and how much memory that takes.

Run: make bench-read        (or: python -m bench.read_speed --requests 1000000)

Both loops run in this process, one after the other, several times; what is compared is the best and the median of each.
Peak memory is that of processes of their own, which stream a file of one size each.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from workloads import stream_requests

WORDS = (
    "parcel",
    "answer",
    "value",
    "return",
    "because",
    "river",
    "number",
    "between",
    "small",
    "table",
    "keep",
    "first",
)


def write_traffic(path: Path, requests: int, bytes_each: int) -> None:
    """Requests as the recorder writes them: a chat with a system prompt, sampling fields, and what was answered."""
    source = random.Random(0)
    texts = [" ".join(source.choices(WORDS, k=bytes_each // 9)) for _ in range(64)]
    with path.open("wb") as file:
        for number in range(requests):
            filler = source.choice(texts)
            body = {
                "model": "demo",
                "messages": [
                    {"role": "system", "content": "You are the support assistant. Answer in one or two sentences."},
                    {"role": "user", "content": f"Question {number}: {filler}"[: bytes_each - 520]},
                ],
                "max_tokens": 128,
                "temperature": 0.6,
                "stream": True,
            }
            record = {
                "id": f"req-{source.getrandbits(64):016x}",
                "timestamp_s": number * 0.01,
                "endpoint": "/v1/chat/completions",
                "route": "support",
                "session": f"s{number // 3}",
                "body": body,
                "recorded": {
                    "prompt_tokens": 400,
                    "completion_tokens": 90,
                    "ttft_s": 0.08,
                    "duration_s": 1.5,
                    "status": 200,
                },
            }
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def bare(path: Path) -> int:
    """Bare orjson over the lines."""
    loads, count = orjson.loads, 0
    with path.open("rb") as file:
        for line in file:
            loads(line)
            count += 1
    return count


def stream(path: Path) -> int:
    """Our reader."""
    count = 0
    for _ in stream_requests(path):
        count += 1
    return count


def timed(read: Callable[[Path], int], path: Path) -> float:
    """Seconds per request."""
    start_s = time.perf_counter()
    count = read(path)
    return (time.perf_counter() - start_s) / count


def peak_rss_mib(path: Path) -> float:
    """Peak memory of a process that streams a file."""
    code = (
        "import resource,sys; sys.path.insert(0, '.'); from bench.read_speed import stream; from pathlib import Path; "
        "stream(Path(sys.argv[1])); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    """Writes traffic, reads it both ways, prints a table; fails below the asked share of bare orjson's speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.6, help="share of bare orjson's speed that must be reached")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traffic.jsonl"
        write_traffic(path, options.requests, options.bytes)
        mean_bytes = path.stat().st_size / options.requests
        bare(path)
        times: dict[str, list[float]] = {"bare orjson": [], "stream_requests": []}
        for _ in range(options.repeats):
            times["bare orjson"].append(timed(bare, path))
            times["stream_requests"].append(timed(stream, path))
        print(f"{options.requests} requests of {mean_bytes:.0f} bytes, {options.repeats} repeats each, alternating")
        for name, seconds in times.items():
            print(f"{name:16} {min(seconds) * 1e6:6.2f} us best {statistics.median(seconds) * 1e6:6.2f} us median")
        shares = [one / other for one, other in zip(*times.values(), strict=True)]
        spread = f"median of pairs, {min(shares):.0%} to {max(shares):.0%}"
        print(f"share of bare orjson's speed: {statistics.median(shares):.0%} ({spread})")
        for part in (options.requests // 4, options.requests):
            write_traffic(path, part, options.bytes)
            size_mib = path.stat().st_size / 2**20
            print(f"peak memory streaming {part} requests ({size_mib:.0f} MiB): {peak_rss_mib(path):.0f} MiB")
    return 0 if statistics.median(shares) >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
