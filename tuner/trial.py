"""One trial: launch an engine, measure every condition that is still missing, tear it down, write the record.

Completed measurements of an earlier, killed attempt at the same trial are kept and not repeated. What failed is
classified: the configuration's fault teaches the search, the infrastructure's is tried again.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from runners import Engine, EngineDied, EngineUnreachable, LaunchFailure, LaunchSpec, MetricsError, Runner
from search_spaces import Values
from tuner.breakdown import ENGINE_START, ENGINE_STOP, Breakdown
from tuner.host import away_from_engine
from tuner.measure import measure
from tuner.plan import Plan
from tuner.records import Failure, TrialPlan, TrialRecord
from tuner.store import Store

INFRASTRUCTURE_ATTEMPTS = 3
SERVED_MODEL = "tuned"


@dataclass(frozen=True, slots=True)
class Bench:
    """What every trial of a study works with."""

    plan: Plan
    store: Store
    runner: Runner
    breakdown: Breakdown
    say: Callable[[str], None]
    phase: Callable[[str | None], None]


async def run_trial(bench: Bench, trial: TrialPlan, *, meanwhile: Awaitable[None] | None = None) -> TrialRecord:
    """Runs a trial to its end and writes its record.

    Args:
        bench: the study's plan, store and runner.
        trial: what to launch and measure; already written to the store.
        meanwhile: the tuner's own work that may run while the engine starts, but not while it is measured.
    """
    seconds_before = dict(bench.breakdown.seconds)
    failure, version, applied = await _attempts(bench, trial, meanwhile)
    measured = bench.store.measurements(trial.number)
    complete = all(key in measured for key in trial.conditions)
    status = "measured" if complete else "failed" if failure and failure.infrastructure else "rejected"
    record = TrialRecord(
        plan=trial,
        status=status,
        failure=failure,
        engine_version=version,
        seconds={name: total - seconds_before.get(name, 0.0) for name, total in bench.breakdown.seconds.items()},
        measurements=measured,
        applied=applied,
    )
    bench.store.write_record(record)
    return record


async def _attempts(
    bench: Bench, trial: TrialPlan, meanwhile: Awaitable[None] | None
) -> tuple[Failure | None, str | None, dict[str, str]]:
    """Tries until the configuration is measured or at fault; returns failure, engine version, differing knobs."""
    failure, version, applied = None, None, {}
    for attempt in range(INFRASTRUCTURE_ATTEMPTS):
        work, meanwhile = meanwhile, None
        try:
            async with _running_engine(bench, trial, work) as engine:
                asked = bench.plan.space.alive(trial.serve_config.values)
                version, applied = engine.version, _differences(asked, engine.info)
                with away_from_engine(bench.plan.space.facts.device):
                    await _measure_missing(bench, trial, engine)
        except LaunchFailure as error:
            failure = Failure(kind=error.kind, message=error.message, infrastructure=error.infrastructure)
        except EngineDied as error:
            failure = Failure(kind=error.kind, message=error.message, infrastructure=False)
        except (EngineUnreachable, MetricsError) as error:
            failure = Failure(kind="hung", message=str(error), infrastructure=False)
        else:
            return None, version, applied
        bench.say(f"  trial {trial.number}: {failure.kind}: {failure.message}")
        if not failure.infrastructure:
            break
        if attempt + 1 < INFRASTRUCTURE_ATTEMPTS:
            await asyncio.sleep(2**attempt)
    return failure, version, applied


@asynccontextmanager
async def _running_engine(bench: Bench, trial: TrialPlan, meanwhile: Awaitable[None] | None) -> AsyncIterator[Engine]:
    """Starts and stops the engine, each under its own name in the breakdown."""
    plan, config = bench.plan, trial.serve_config
    spec = LaunchSpec(
        # Last, so that it wins over a name that the user's exports are to have.
        argv=(*plan.config.engine_argv, *config.to_argv(), "--served-model-name", SERVED_MODEL),
        env={**config.env, "VLLM_CACHE_ROOT": str(_compile_cache(plan, config.id))},
        workdir=bench.store.trial_directory(trial.number).absolute(),
        served_model=SERVED_MODEL,
        ready_timeout_s=plan.config.ready_timeout_s,
        study=study_marker(plan),
    )
    async with AsyncExitStack() as stack:
        with bench.breakdown.activity(ENGINE_START):
            work = asyncio.ensure_future(meanwhile) if meanwhile is not None else None
            try:
                launch = bench.runner.launch(spec, on_progress=lambda text: bench.phase(f"engine: {text}"))
                engine = await stack.enter_async_context(launch)
            finally:
                bench.phase(None)
                if work is not None:
                    await work
        bench.say(f"    engine ready after {engine.start_s:.0f} s (vLLM {engine.version})")
        try:
            yield engine
        finally:
            with bench.breakdown.activity(ENGINE_STOP):
                await stack.aclose()


def study_marker(plan: Plan) -> str:
    """What marks this study's processes on the host: studies of one name in two directories are two studies."""
    place = str(plan.config.directory.absolute())
    return f"{plan.config.study}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _compile_cache(plan: Plan, config_id: str) -> Path:
    """One compile cache per launch configuration: vLLM's own key leaves out K (vllm#53366).

    What vLLM learns of a model's class depends on no knob and is shared: without it every start imports vLLM once more.
    """
    caches = plan.config.directory.absolute() / "cache"
    shared = caches / "modelinfos"
    shared.mkdir(parents=True, exist_ok=True)
    cache = caches / config_id
    cache.mkdir(exist_ok=True)
    link = cache / shared.name
    if not link.is_symlink():
        link.symlink_to(shared)
    return cache


async def _measure_missing(bench: Bench, trial: TrialPlan, engine: Engine) -> None:
    plan, store = bench.plan, bench.store
    done = store.measurements(trial.number)
    held_out = trial.phase == "confirm"
    for condition in plan.conditions:
        if condition.key not in trial.conditions or condition.key in done:
            continue
        blocks = plan.held_out_blocks if held_out else plan.search_blocks
        try:
            measurement = await measure(
                engine,
                condition,
                blocks[condition.profile],
                part="held_out" if held_out else "search",
                temperature=condition.temperature if trial.temperature is None else trial.temperature,
                slos=plan.slos,
                timeout_s=plan.config.measure_timeout_s,
                breakdown=bench.breakdown,
            )
        except EngineUnreachable:
            reason = engine.died()
            if reason is not None:
                raise EngineDied(reason, log_tail=engine.log_tail()) from None
            raise
        if (reason := engine.died()) is not None:
            raise EngineDied(reason, log_tail=engine.log_tail())
        store.write_measurement(trial.number, measurement)
        value = measurement.metrics.get(plan.objective.metric)
        shown = "not measured" if value is None else f"{value:.4g} {plan.objective.unit}"
        note = "" if measurement.valid else f"  INVALID: {measurement.problems[0]}"
        bench.say(f"    {condition.key}: {shown} in {measurement.replay_s:.1f} s{note}")


def _differences(asked: Values, info: object) -> dict[str, str]:
    """Knobs that the running engine reports with another value than asked for; dead ones are not asked for."""
    effective = effective_knobs(info)
    return {
        name: str(effective[name])
        for name, value in asked.items()
        if value is not None and name in effective and effective[name] != value
    }


def effective_knobs(info: object) -> dict[str, object]:
    """Knob values that /server_info reports, under the tuner's names; absent where it does not say."""
    config = info.get("vllm_config", info) if isinstance(info, dict) else {}
    if not isinstance(config, dict):
        return {}
    cache, scheduler = config.get("cache_config") or {}, config.get("scheduler_config") or {}
    speculative = config.get("speculative_config") or {}
    found = {
        "kv_block_size": cache.get("block_size"),
        "prefix_caching": cache.get("enable_prefix_caching"),
        "max_num_seqs": scheduler.get("max_num_seqs"),
        "max_num_batched_tokens": scheduler.get("max_num_batched_tokens"),
        "method": speculative.get("method") or "none",
        "num_speculative_tokens": speculative.get("num_speculative_tokens"),
        "disable_eagle_block_drop": speculative.get("disable_eagle_block_drop"),
    }
    return {name: value for name, value in found.items() if value is not None}
