"""The same measurement five times on one engine: how far apart are the figures, and was the load what was asked for?

    .venv/bin/python -m bench.repeatability            # the demo pair on the CPU engine, K=7, concurrency 1 and 8

Before each measurement a fixed piece of work of the engine's footprint runs on the engine's core (`host_control.py`),
because hosts drift: a shared one slows down for seconds or minutes. Prints a row per repeat and, per concurrency, the
spread (largest minus smallest, over the median) of the engine's figures and of the host's own. Exits with 1 when a
measurement is invalid, or when the engine's spread is above the limit and above the host's.
"""

import argparse
import asyncio
import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.demo_engine import ROOT, demo_config, launch_spec, serve_config
from runners import Engine, LocalRunner
from tuner.breakdown import Breakdown
from tuner.conditions import Condition
from tuner.host import away_from_engine
from tuner.measure import measure
from tuner.plan import make_plan
from tuner.records import Measurement
from workloads import Block, Load

LIMIT = 0.03


def main() -> int:
    """Runs the repeats and judges them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", default="code")
    parser.add_argument("--k", type=int, default=7, help="draft length; 0 is no speculation")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=40, help="requests per measurement at concurrency 1")
    parser.add_argument("--control-seconds", type=float, default=10.0)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    results = asyncio.run(repeat(arguments))
    verdicts = [report(concurrency, repeats) for concurrency, repeats in results.items()]
    return 0 if all(verdicts) else 1


@dataclass(frozen=True)
class Repeat:
    """One measurement and what the host did by itself just before."""

    measurement: Measurement
    host_rate: float


async def repeat(arguments: argparse.Namespace) -> dict[int, list[Repeat]]:
    """All measurements on one launch, by concurrency; the concurrencies take turns, so that drift meets all of them."""
    plan = make_plan(demo_config(requests=arguments.requests))
    blocks = plan.search_blocks[arguments.profile]
    results: dict[int, list[Repeat]] = {concurrency: [] for concurrency in arguments.concurrency}
    with tempfile.TemporaryDirectory() as directory:
        spec = launch_spec(plan, serve_config(plan, arguments.k), Path(directory))
        async with LocalRunner().launch(spec) as engine:
            for _ in range(arguments.repeats):
                for concurrency in arguments.concurrency:
                    host_rate = await host_control(arguments.control_seconds)
                    with away_from_engine(plan.space.facts.device):
                        measured = await measure_once(
                            engine, arguments.profile, concurrency, longer(blocks, concurrency)
                        )
                    results[concurrency].append(Repeat(measured, host_rate))
    return results


async def measure_once(engine: Engine, profile: str, concurrency: int, blocks: Sequence[Block]) -> Measurement:
    """As a study measures."""
    condition = Condition(profile, profile, None, Load("concurrency", float(concurrency)))
    return await measure(
        engine, condition, blocks, part="search", temperature=None, slos=(), timeout_s=600, breakdown=Breakdown()
    )


async def host_control(seconds: float) -> float:
    """Passes per second of the fixed work, while the engine idles."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "bench/host_control.py"), "--seconds", str(seconds), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return float(output)


def longer(blocks: Sequence[Block], concurrency: int) -> list[Block]:
    """The blocks several times over, so that a measurement at a high concurrency lasts about as long as one at 1."""
    return [
        dataclasses.replace(
            block,
            index=len(blocks) * turn + block.index,
            requests=tuple(dataclasses.replace(request, id=f"{request.id}/{turn}") for request in block.requests),
        )
        for turn in range(max(1, concurrency // 2))
        for block in blocks
    ]


def report(concurrency: int, repeats: list[Repeat]) -> bool:
    """Prints the repeats of one concurrency; whether they are valid and agree as far as the host does."""
    for number, each in enumerate(repeats, start=1):
        m = each.measurement
        print(
            f"concurrency {concurrency}  repeat {number}: {m.metrics['output_tok_s']:7.1f} tok/s, "
            f"TPOT p50 {m.metrics['tpot_p50_s'] * 1000:5.2f} ms, "
            f"running {m.metrics['running_mean']:.2f} of {concurrency}, {m.replay_s:.1f} s; "
            f"host {each.host_rate:.1f} passes/s"
            f"{'' if m.valid else '  INVALID: ' + '; '.join(m.problems)}"
        )
    engine = spread([each.measurement.metrics["output_tok_s"] for each in repeats])
    host = spread([each.host_rate for each in repeats])
    print(f"concurrency {concurrency}  spread: engine {engine:.1%} (limit {LIMIT:.0%}), host by itself {host:.1%}")
    return engine <= max(LIMIT, host) and all(each.measurement.valid for each in repeats)


def spread(values: list[float]) -> float:
    """Largest minus smallest, over the median."""
    return (max(values) - min(values)) / statistics.median(values)


if __name__ == "__main__":
    sys.exit(main())
