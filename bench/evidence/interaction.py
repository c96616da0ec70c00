"""Evidence on the real CPU engine: block drop on and off, acceptance over temperature, load curve with its crossover.

    .venv/bin/python -m bench.evidence.interaction cached        # cached tokens of one prompt, KV block 32; 3 launches
    .venv/bin/python -m bench.evidence.interaction interaction   # a long shared prompt, speculation x prefix cache; 5
    .venv/bin/python -m bench.evidence.interaction temperature   # acceptance at temperatures 0 to 1.2; 1
    .venv/bin/python -m bench.evidence.interaction load          # concurrency 1 to 32, K of 0, 3, 7, 15; 4
    .venv/bin/python -m bench.evidence.interaction report        # writes docs/evidence/interaction.md

Each step keeps its trials in --out and launches only what is missing, so it can be stopped; `--launches N` limits it.
The studies are ordinary ones: `tune explain NAME --out OUT` says what the report says.
"""

import argparse
import asyncio
import http.client
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.demo_engine import ENGINE_ARGS, ROOT, SAMPLE, demo_config, launch_spec
from bench.evidence.page import write_page
from runners import Engine, LaunchSpec, LocalRunner
from search_spaces import Scalar
from tuner import host
from tuner.breakdown import Breakdown
from tuner.config import TuneConfig
from tuner.gpus import find_gpus
from tuner.plan import make_plan
from tuner.records import TrialPlan
from tuner.store import Store
from tuner.trial import Bench, run_trial

DROP_OFF = "disable_eagle_block_drop"
PROMPT_TOKENS = (128, 129, 200, 257)
MORE_TOKENS = 40


@dataclass(frozen=True)
class Step:
    """One study: which traffic under which conditions, and the configurations to measure."""

    route: str
    load: str
    temperature: str
    requests: int
    configs: tuple[dict[str, Scalar], ...]


def speculating(k: int, **values: Scalar) -> dict[str, Scalar]:
    """Knob values with the demo's draft."""
    return {"method": "dflash", "num_speculative_tokens": k, **values}


PLAIN: dict[str, Scalar] = {"method": "none"}
STEPS = {
    "interaction": Step(
        route="support",
        load="concurrency=1",
        temperature="recorded",
        requests=20,
        configs=(
            PLAIN,
            {**PLAIN, "prefix_caching": False},
            speculating(7),
            speculating(7, prefix_caching=False),
            speculating(7, **{DROP_OFF: True}),
        ),
    ),
    "temperature": Step(
        route="code",
        load="concurrency=4",
        temperature="0,0.4,0.8,1.2",
        requests=24,
        configs=(speculating(7),),
    ),
    "load": Step(
        route="code",
        load="concurrency=1,2,4,8,16,32",
        temperature="recorded",
        requests=32,
        configs=(PLAIN, speculating(3), speculating(7), speculating(15)),
    ),
}


def main() -> int:
    """Runs one step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=["cached", *STEPS, "report"])
    parser.add_argument("--out", type=Path, default=ROOT / "demo/runs/evidence")
    parser.add_argument("--launches", type=int, default=99, help="launches of this call at most")
    arguments = parser.parse_args()
    if arguments.step == "report":
        write_page(ROOT / "docs/evidence/interaction.md", arguments.out, list(STEPS))
    elif arguments.step == "cached":
        cached(arguments.out / "cached.json", arguments.launches)
    else:
        asyncio.run(study(arguments.step, arguments.out, arguments.launches))
    return 0


async def study(name: str, out: Path, launches: int) -> None:
    """Launches the configurations that have no trial yet."""
    step = STEPS[name]
    config = _config(name, step, out)
    store = Store.open(out, name) if (out / name / "study.json").is_file() else Store.create(config)
    plan = make_plan(config)
    bench = Bench(plan, store, LocalRunner(), Breakdown(), print, lambda _: None, find_gpus(config))
    store.write_provenance(
        host.provenance(plan.gpus, engine_version=plan.engine_version, workload_digest=plan.workload.digest)
    )
    done = {record.plan.step for record in store.records() if record.status == "measured"}
    for number, values in enumerate(step.configs):
        label = "baseline" if number == 0 else f"seed/{number}"
        if label in done or launches == 0:
            continue
        launches -= 1
        trial = TrialPlan(
            number=number,
            step=label,
            phase="seed" if number else "baseline",
            asked_by=None,
            temperature=None,
            serve_config=plan.space.serve_config(values),
            conditions=tuple(condition.key for condition in plan.conditions),
        )
        store.write_plan(trial)
        record = await run_trial(bench, trial)
        print(f"{trial.serve_config.label()}: {record.status} {record.failure or ''}")


def _config(name: str, step: Step, out: Path) -> TuneConfig:
    traffic = out / f"{step.route}.jsonl"
    traffic.parent.mkdir(parents=True, exist_ok=True)
    lines = SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)
    traffic.write_text("".join(line for line in lines if json.loads(line)["route"] == step.route), encoding="utf-8")
    return demo_config(
        workload=traffic,
        engine_args=(*ENGINE_ARGS, "--enable-prompt-tokens-details"),
        space="dflash",
        load=step.load,
        temperature=step.temperature,
        requests=step.requests,
        profile_by="none",
        study=name,
        out=out,
        tracking=False,
    )


def cached(path: Path, launches: int) -> None:
    """Cached tokens of a prompt sent again, and of the same prompt with MORE_TOKENS behind it, by configuration."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    plan = make_plan(_config("cached", STEPS["interaction"], path.parent))
    for values in (PLAIN, speculating(7), speculating(7, **{DROP_OFF: True})):
        config = plan.space.serve_config({**values, "kv_block_size": 32})
        if config.label() in found or launches == 0:
            continue
        launches -= 1
        with tempfile.TemporaryDirectory() as directory:
            spec = launch_spec(plan, config, Path(directory))
            found[config.label()] = asyncio.run(_launched(spec))
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(config.label(), found[config.label()])


async def _launched(spec: LaunchSpec) -> dict[str, list[int]]:
    async with LocalRunner().launch(spec) as engine:
        return await asyncio.to_thread(_cached_of, engine)


def _cached_of(engine: Engine) -> dict[str, list[int]]:
    rows = {}
    for tokens in PROMPT_TOKENS:
        chance = random.Random(tokens)
        prompt = [chance.randrange(100, 4000) for _ in range(tokens + MORE_TOKENS)]
        _ask(engine, prompt[:tokens])
        rows[str(tokens)] = [_ask(engine, prompt[:tokens]), _ask(engine, prompt)]
    return rows


def _ask(engine: Engine, prompt: Sequence[int]) -> int:
    """Cached tokens of one greedy request of 4 tokens."""
    url = urlsplit(engine.base_url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    body = {"model": engine.model, "prompt": list(prompt), "max_tokens": 4, "temperature": 0}
    headers = {"Authorization": f"Bearer {engine.api_key}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    usage = json.loads(connection.getresponse().read())["usage"]
    connection.close()
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


if __name__ == "__main__":
    sys.exit(main())
