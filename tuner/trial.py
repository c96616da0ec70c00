"""One trial: launch an engine, measure every condition that is still missing, tear it down, write the record.

Completed measurements of an earlier, killed attempt at the same trial are kept and not repeated. What failed is
classified: the configuration's fault teaches the search, the infrastructure's is tried again.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from runners import Engine, EngineDied, EngineHung, EngineUnreachable, LaunchFailure, LaunchSpec, MetricsError, Runner
from search_spaces import Scalar
from tuner.breakdown import ENGINE_START, ENGINE_STOP, Breakdown
from tuner.engine_command import other_release
from tuner.gpus import StudyGpus
from tuner.host import away_from_engine
from tuner.measure import measure
from tuner.plan import Plan
from tuner.readback import Readings, read_back
from tuner.records import Failure, Measurement, TrialPlan, TrialRecord
from tuner.store import Store

INFRASTRUCTURE_ATTEMPTS = 3
SERVED_MODEL = "tuned"
_START_LINES = 5000


@dataclass(frozen=True, slots=True)
class Bench:
    """What every trial of a study works with."""

    plan: Plan
    store: Store
    runner: Runner
    breakdown: Breakdown
    say: Callable[[str], None]
    phase: Callable[[str | None], None]
    gpus: StudyGpus


async def run_trial(bench: Bench, trial: TrialPlan, *, meanwhile: Awaitable[None] | None = None) -> TrialRecord:
    """Runs a trial to its end and writes its record.

    Args:
        bench: the study's plan, store and runner.
        trial: what to launch and measure; already written to the store.
        meanwhile: the tuner's own work that may run while the engine starts, but not while it is measured.
    """
    seconds_before, started_at = dict(bench.breakdown.seconds), _now()
    failure, version, applied = await _attempts(bench, trial, meanwhile)
    measured = bench.store.measurements(trial.number)
    complete = all(key in measured for key in trial.conditions)
    status = "measured" if complete else "failed" if failure and failure.infrastructure else "rejected"
    record = TrialRecord(
        plan=trial,
        status=status,
        failure=failure,
        engine_version=version,
        started_at=started_at,
        ended_at=_now(),
        seconds={name: total - seconds_before.get(name, 0.0) for name, total in bench.breakdown.seconds.items()},
        measurements=measured,
        applied=applied,
    )
    bench.store.write_record(record)
    return record


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


async def _attempts(
    bench: Bench, trial: TrialPlan, meanwhile: Awaitable[None] | None
) -> tuple[Failure | None, str | None, dict[str, Scalar]]:
    """Tries until the configuration is measured or at fault; returns failure, engine version, differing knobs."""
    failure: Failure | None = None
    version: str | None = None
    applied: dict[str, Scalar] = {}
    for attempt in range(INFRASTRUCTURE_ATTEMPTS):
        work, meanwhile = meanwhile, None
        try:
            async with _running_engine(bench, trial, work) as engine:
                version, applied = engine.version, await _read_back(bench, trial, engine)
                with away_from_engine(bench.plan.space.facts.device):
                    await _measure_missing(bench, trial, engine)
        except LaunchFailure as error:
            failure = Failure(kind=error.kind, message=error.message, infrastructure=error.infrastructure)
        except EngineDied as error:
            failure = Failure(kind=error.kind, message=error.message, infrastructure=error.infrastructure)
        except (EngineHung, EngineUnreachable, MetricsError) as error:
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
    slot = bench.gpus.slot(config)
    spec = LaunchSpec(
        # Last, so that it wins over a name that the user's exports are to have.
        argv=(
            # A container has a command line of its own; the daemon decides where it runs.
            *(slot.pinning() if slot and plan.config.engine_image is None else ()),
            *plan.config.engine_argv,
            *config.to_argv(),
            "--served-model-name",
            SERVED_MODEL,
        ),
        env={**config.env, **(slot.env if slot else {}), "VLLM_CACHE_ROOT": str(_compile_cache(plan, config.id))},
        workdir=bench.store.trial_directory(trial.number).absolute(),
        served_model=SERVED_MODEL,
        ready_timeout_s=plan.config.ready_timeout_s,
        study=study_marker(plan),
    )
    # The GPUs see what ended the trial: who waits at the terminal does not wait for their memory.
    with ExitStack() as stopping:
        async with bench.gpus.held(slot), AsyncExitStack() as stack:
            with bench.breakdown.activity(ENGINE_START):
                work = asyncio.ensure_future(meanwhile) if meanwhile is not None else None
                try:
                    launch = bench.runner.launch(spec, on_progress=lambda text: bench.phase(f"engine: {text}"))
                    engine = await stack.enter_async_context(launch)
                finally:
                    bench.phase(None)
                    if work is not None:
                        await work
            _say_ready(bench, engine)
            try:
                yield engine
            finally:
                stopping.enter_context(bench.breakdown.activity(ENGINE_STOP))


def _say_ready(bench: Bench, engine: Engine) -> None:
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in engine.phases_s.items() if seconds >= 1)
    bench.say(f"    engine ready after {engine.start_s:.0f} s (vLLM {engine.version}){f': {phases}' if phases else ''}")
    if warning := other_release(engine.version, bench.plan.engine_version):
        bench.say(f"    warning: {warning}")


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
        measuring = measure(
            engine,
            condition,
            blocks[condition.profile],
            part="held_out" if held_out else "search",
            temperature=condition.temperature if trial.temperature is None else trial.temperature,
            slos=plan.slos,
            timeout_s=plan.config.measure_timeout_s,
            breakdown=bench.breakdown,
            seed=plan.config.seed,
            client_processes=plan.config.client_processes,
            observe=lambda: bench.gpus.observe(bench.gpus.slot(trial.serve_config), engine.pid),
            keep=partial(store.write_request_times, trial.number),
        )
        measurement = await _watched(engine, measuring, silence_s=plan.config.hang_timeout_s)
        store.write_measurement(trial.number, measurement)
        value = measurement.metrics.get(plan.objective.metric)
        shown = "not measured" if value is None else f"{value:.4g} {plan.objective.unit}"
        note = "" if measurement.valid else f"  INVALID: {measurement.problems[0]}"
        bench.say(f"    {condition.key}: {shown} in {measurement.replay_s:.1f} s{note}")


async def _watched(engine: Engine, measuring: Coroutine[None, None, Measurement], *, silence_s: float) -> Measurement:
    """The measurement, unless the engine dies or hangs before it is done."""
    replaying = asyncio.create_task(measuring)
    watching = asyncio.create_task(engine.watch(silence_s=silence_s))
    try:
        await asyncio.wait({replaying, watching}, return_when=asyncio.FIRST_COMPLETED)
        # The last request may have broken off a moment before the death was noticed.
        if watching.done() or engine.died() is not None:
            await watching
        return replaying.result()
    finally:
        for task in (replaying, watching):
            task.cancel()
        await asyncio.gather(replaying, watching, return_exceptions=True)


async def _read_back(bench: Bench, trial: TrialPlan, engine: Engine) -> dict[str, Scalar]:
    """What the engine uses instead of what it was asked for, said once per launch."""
    space = bench.plan.space
    readings = Readings(
        info=engine.info, cache_config=(await engine.scrape()).cache_config, log=engine.log_tail(_START_LINES)
    )
    applied = read_back(trial.serve_config, space.alive(trial.serve_config.values), space.knobs, readings)
    for name, value in applied.items():
        asked = trial.serve_config.values.get(name, trial.serve_config.fixed_args.get(name))
        bench.say(f"    {name}: the engine uses {value}{'' if asked is None else f' instead of {asked}'}")
    return applied
