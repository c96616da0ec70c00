"""The same measurement five times on one engine: how far apart are the figures, and was the load what was asked for?

    .venv/bin/python bench/repeatability.py            # the demo pair on the CPU engine, K=7, concurrency 1 and 8

Prints a row per repeat and, per concurrency, the spread (largest minus smallest, over the median). Exits with 1 when a
spread is above the limit or a measurement is invalid.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from runners import LaunchSpec, LocalRunner
from search_spaces import Scalar, ServeConfig
from tuner.breakdown import Breakdown
from tuner.conditions import Condition
from tuner.config import build_config
from tuner.engine_command import engine_argv
from tuner.host import away_from_engine
from tuner.measure import measure
from tuner.plan import Plan, make_plan
from tuner.records import Measurement
from workloads import Load

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 0.03


def main() -> int:
    """Runs the repeats and judges them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", default="code")
    parser.add_argument("--k", type=int, default=7, help="draft length; 0 is no speculation")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=40, help="requests per measurement")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    results = asyncio.run(repeat(arguments))
    verdicts = [report(concurrency, measurements) for concurrency, measurements in results.items()]
    return 0 if all(verdicts) else 1


async def repeat(arguments: argparse.Namespace) -> dict[int, list[Measurement]]:
    """All measurements on one launch, by concurrency."""
    plan = demo_plan(arguments.requests)
    blocks = plan.search_blocks[arguments.profile]
    with tempfile.TemporaryDirectory() as directory:
        spec = launch_spec(plan, serve_config(plan, arguments.k), Path(directory))
        async with LocalRunner().launch(spec) as engine, AsyncExitStack() as stack:
            stack.enter_context(away_from_engine(plan.space.facts.device))
            results: dict[int, list[Measurement]] = {}
            for concurrency in arguments.concurrency:
                load = Load("concurrency", float(concurrency))
                condition = Condition(arguments.profile, arguments.profile, None, load)
                results[concurrency] = [
                    await measure(
                        engine,
                        condition,
                        blocks,
                        part="search",
                        temperature=None,
                        slos=(),
                        timeout_s=600,
                        breakdown=Breakdown(),
                    )
                    for _ in range(arguments.repeats)
                ]
    return results


def demo_plan(requests: int) -> Plan:
    """The demo's plan, for its profiles and blocks."""
    return make_plan(
        build_config(
            workload=ROOT / "workloads/samples/api_traffic.jsonl",
            model=str(ROOT / "demo/models/target"),
            draft=str(ROOT / "demo/models/draft"),
            engine_argv=engine_argv(python=str(ROOT / ".engine/bin/python"), command=None),
            engine_args=("--dtype", "float32", "--enforce-eager", "--max-model-len", "4096"),
            engine_env={"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
            space=str(ROOT / "demo/space.yaml"),
            load="concurrency=1",
            requests=requests,
            study="bench",
        )
    )


def serve_config(plan: Plan, k: int) -> ServeConfig:
    """The demo's engine with draft length k."""
    values: dict[str, Scalar] = {"method": "dflash", "num_speculative_tokens": k} if k else {"method": "none"}
    return plan.space.serve_config(plan.space.complete(values))


def launch_spec(plan: Plan, config: ServeConfig, directory: Path) -> LaunchSpec:
    """How the bench starts an engine."""
    return LaunchSpec(
        argv=(*plan.config.engine_argv, *config.to_argv(), "--served-model-name", "bench"),
        env=config.env,
        workdir=directory,
        served_model="bench",
        study="bench",
    )


def report(concurrency: int, measurements: list[Measurement]) -> bool:
    """Prints the repeats of one concurrency; whether they agree and are valid."""
    values = [m.metrics["output_tok_s"] for m in measurements]
    for number, m in enumerate(measurements, start=1):
        print(
            f"concurrency {concurrency}  repeat {number}: {m.metrics['output_tok_s']:7.1f} tok/s, "
            f"TPOT p50 {m.metrics['tpot_p50_s'] * 1000:5.2f} ms, running {m.metrics['running_mean']:.2f}, "
            f"in flight {m.metrics['in_flight_mean']:.2f}, {m.replay_s:.1f} s"
            f"{'' if m.valid else '  INVALID: ' + '; '.join(m.problems)}"
        )
    spread = (max(values) - min(values)) / statistics.median(values)
    print(f"concurrency {concurrency}  spread {spread:.1%} (limit {LIMIT:.0%})")
    return spread <= LIMIT and all(m.valid for m in measurements)


if __name__ == "__main__":
    sys.exit(main())
