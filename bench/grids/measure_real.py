"""Measures the ground-truth grid: every serve config of bench/grids/space.yaml on the real CPU engine, demo pair.

    .venv/bin/python -m bench.grids.measure_real                    # all that is missing, one launch after the other
    .venv/bin/python -m bench.grids.measure_real --minutes 60       # stops after that time; run it again to go on
    .venv/bin/python -m bench.grids.measure_real --launches 2       # a second launch of each: do launches differ?
    .venv/bin/python -m bench.grids.measure_real --pack             # makes real_cpu.csv.gz, which the benches read

A row is one measurement: two profiles x temperatures 0 and 0.8 x concurrency 1 and 8 (4 where prompts are long) x
three repeats on each launch. The rows of a launch are appended together when it is complete, so a killed run
loses one launch. Every config replays the same requests. Order: a fixed
shuffle of KV block sizes 32 and 128, then of 64, so that a stopped run is usable.
Throughput here is tokens over the whole replay: bursts this short have no steady part to cut out.
"""

import argparse
import asyncio
import csv
import dataclasses
import gzip
import io
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from bench.demo_engine import demo_config, launch_spec
from runners import Engine, EngineMetrics, LaunchFailure, LocalRunner
from search_spaces import ServeConfig
from tuner.host import away_from_engine
from tuner.plan import Plan, make_plan
from workloads import Block, Load, ReplayMetrics, Target, replay, summarise

HERE = Path(__file__).parent
TABLE = HERE / "real_cpu.csv"
TEMPERATURES = (0.0, 0.8)
# Profile -> concurrency -> requests of one measurement. The prompts are as recorded, the answers are cut short.
REQUESTS = {"code": {1: 3, 8: 16}, "support": {1: 2, 4: 4}}
OUTPUT_TOKENS = 24
WARM_UP_TOKENS = 4
BLOCKS = 2
# Nothing is compiled (--enforce-eager), so that one cache serves every config.
CACHE = Path(tempfile.gettempdir()) / "dflash-tuner-grid-cache"
REPEATS = 3
KNOBS = ("method", "num_speculative_tokens", "prefix_caching", "disable_eagle_block_drop", "kv_block_size")
MEASURED = (
    "output_tok_s", "tpot_p50_s", "ttft_p50_s", "e2e_p90_s", "acceptance_length", "prefix_hit_rate",
    "in_flight_mean", "running_mean", "loop_lag_p99_s", "completion_tokens", "failed", "replay_s",
)  # fmt: skip
COLUMNS = (
    "config", *KNOBS, "launch", "start_s", "profile", "temperature", "concurrency", "repeat", *MEASURED,
    "accepted_at", "failure",
)  # fmt: skip

Row = dict[str, object]


def main() -> int:
    """Measures what the table lacks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=TABLE)
    parser.add_argument("--launches", type=int, default=1, help="launches of each config")
    parser.add_argument("--limit", type=int, default=None, help="launches of this run at most")
    parser.add_argument("--minutes", type=float, default=None, help="begin no launch after this time")
    parser.add_argument("--pack", action="store_true", help="compress the table and stop")
    arguments = parser.parse_args()
    if arguments.pack:
        print(pack(arguments.out))
        return 0
    plan = make_plan(demo_config(space=str(HERE / "space.yaml"), blocks=BLOCKS, study="grid"))
    missing = list(missing_launches(plan, arguments.out, arguments.launches))
    print(f"{len(missing)} launches are missing in {arguments.out}", flush=True)
    begun_s = time.monotonic()
    for number, (config, launch) in enumerate(missing[: arguments.limit]):
        spent_s = time.monotonic() - begun_s
        if arguments.minutes is not None and spent_s > arguments.minutes * 60:
            break
        rows = asyncio.run(measure_config(plan, config, launch))
        append(arguments.out, rows)
        each_s = (time.monotonic() - begun_s) / (number + 1)
        left_min = each_s * (len(missing) - number - 1) / 60
        progress = f"{number + 1}/{len(missing)}, {each_s:.0f} s each, {left_min:.0f} min left"
        print(f"{progress}  {config.label()}: {digest(rows)}", flush=True)
    return 0


def grid(plan: Plan) -> list[ServeConfig]:
    """Every distinct config of the space, in the order of measuring."""
    found: dict[str, ServeConfig] = {}
    space = plan.space
    for method in ("none", "dflash"):
        for k in space.knobs["num_speculative_tokens"].values() if method == "dflash" else (None,):
            for caching in (True, False):
                for drop in (False, True):
                    for kv_block in space.knobs["kv_block_size"].values():
                        values = dict(zip(KNOBS, (method, k, caching, drop, kv_block), strict=True))
                        config = space.serve_config({n: v for n, v in values.items() if v is not None})
                        found.setdefault(config.id, config)
    configs = sorted(found.values(), key=lambda config: config.id)
    random.Random(0).shuffle(configs)
    return sorted(configs, key=lambda config: config.values["kv_block_size"] == 64)


def missing_launches(plan: Plan, path: Path, launches: int) -> Iterator[tuple[ServeConfig, int]]:
    """Configs with the number of the launch that is not in the table yet."""
    done = set()
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            done = {(row["config"], int(row["launch"])) for row in csv.DictReader(file)}
    for launch in range(launches):
        for config in grid(plan):
            if (config.id, launch) not in done:
                yield config, launch


async def measure_config(plan: Plan, config: ServeConfig, launch: int) -> list[Row]:
    """All measurements of one launch; a single row with the reason when it fails."""
    head: Row = {"config": config.id, **{name: config.identity.get(name) for name in KNOBS}, "launch": launch}
    head |= {"method": config.values["method"], "kv_block_size": config.values["kv_block_size"]}
    head["prefix_caching"] = config.values["prefix_caching"]
    with tempfile.TemporaryDirectory() as directory:
        spec = launch_spec(plan, config, Path(directory))
        spec = dataclasses.replace(spec, env={**spec.env, "VLLM_CACHE_ROOT": str(CACHE)})
        try:
            async with LocalRunner().launch(spec) as engine:
                with away_from_engine(plan.space.facts.device):
                    return [head | row async for row in measure_all(plan, engine)]
        except LaunchFailure as error:
            return [head | {"failure": f"{error.kind}: {error.message}"}]


async def measure_all(plan: Plan, engine: Engine) -> AsyncIterator[Row]:
    """Every condition, warmed up once, then repeated."""
    target = Target(base_url=engine.base_url, api_key=engine.api_key, model=engine.model)
    for profile, loads in REQUESTS.items():
        for concurrency, requests in loads.items():
            load = Load("concurrency", float(concurrency))
            await replay(
                target, shortened(plan, profile, concurrency, WARM_UP_TOKENS), load, temperature=0.0, seed=None,
                cache_salt="warm-up",
            )  # fmt: skip
            blocks = shortened(plan, profile, requests, OUTPUT_TOKENS)
            for temperature in TEMPERATURES:
                for repeat in range(REPEATS):
                    measured = await measure_once(engine, target, blocks, load, temperature)
                    yield {"start_s": round(engine.start_s, 1), "profile": profile, "temperature": temperature,
                           "concurrency": concurrency, "repeat": repeat} | measured  # fmt: skip


async def measure_once(
    engine: Engine, target: Target, blocks: Sequence[Block], load: Load, temperature: float
) -> dict[str, object]:
    """One replay from an empty prefix cache, between two readings of the counters."""
    if not await engine.reset_prefix_cache():
        raise RuntimeError("the engine refused to reset its prefix cache; start it without other traffic")
    before = await engine.scrape()
    result = await replay(target, blocks, load, temperature=temperature, seed=None)
    counters = (await engine.drain()).since(before)
    summary = summarise(result)
    return figures(summary, counters, result.duration_s) | {
        "replay_s": round(result.duration_s, 3),
        "accepted_at": "|".join(f"{share:.3f}" for share in counters.position_acceptance),
    }


def figures(summary: ReplayMetrics, counters: EngineMetrics, duration_s: float) -> dict[str, object]:
    """Four significant digits of what the bench may want."""
    values: dict[str, float | None] = {
        "output_tok_s": summary.completion_tokens / duration_s,
        "tpot_p50_s": summary.tpot_s.p50 if summary.tpot_s else None,
        "ttft_p50_s": summary.ttft_s.p50 if summary.ttft_s else None,
        "e2e_p90_s": summary.e2e_s.p90 if summary.e2e_s else None,
        "acceptance_length": counters.acceptance_length,
        "prefix_hit_rate": counters.prefix_hit_rate,
        "in_flight_mean": summary.in_flight_mean,
        "running_mean": counters.mean_running,
        "loop_lag_p99_s": summary.loop_lag_s.p99 if summary.loop_lag_s else None,
        "completion_tokens": summary.completion_tokens,
        "failed": summary.failed,
    }
    return {name: "" if value is None else f"{value:.4g}" for name, value in values.items()}


def shortened(plan: Plan, profile: str, count: int, tokens: int) -> list[Block]:
    """The first requests of as many sessions, with short answers of a fixed length, in two blocks."""
    every = [request for block in plan.search_blocks[profile] for request in block.requests]
    first = {request.session or request.id: request for request in reversed(every)}
    chosen = list(first.values())[::-1][:count]
    if len(chosen) < count:
        raise RuntimeError(f"profile {profile!r} has {len(chosen)} sessions, {count} are needed")
    body = {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}
    short = [dataclasses.replace(r, session=None, body={**r.body, **body}) for r in chosen]
    half = len(short) // 2
    parts = (short[:half], short[half:]) if half else (short,)
    return [Block(profile=profile, index=index, requests=tuple(part)) for index, part in enumerate(parts)]


def append(path: Path, rows: Sequence[Row]) -> None:
    """Adds the rows of one launch in one write."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.is_file():
        writer.writeheader()
    writer.writerows(rows)
    with path.open("a", encoding="utf-8") as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())


def digest(rows: Sequence[Row]) -> str:
    """A word on one launch."""
    if rows[0].get("failure"):
        return str(rows[0]["failure"])
    spent_s = sum(float(str(row["replay_s"])) for row in rows)
    speeds = [
        f"{row['profile']}/t{row['temperature']}/c{row['concurrency']} {row['output_tok_s']}" for row in rows[::3]
    ]
    return f"start {rows[0]['start_s']} s, replays {spent_s:.0f} s, tok/s {', '.join(speeds)}"


def pack(path: Path) -> Path:
    """The same table compressed, equal bytes for equal rows."""
    packed = path.with_name(path.name + ".gz")
    with packed.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:
        file.write(path.read_bytes())
    return packed


if __name__ == "__main__":
    sys.exit(main())
