"""What a study would take: launches, hours and money, from stated assumptions or from what an earlier study measured.

An estimate, not a promise: the figures that it rests on are part of it. Starts nothing.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from search_spaces import ResolvedSpace
from tuner.breakdown import ENGINE_START, ENGINE_STOP
from tuner.conditions import Condition
from tuner.errors import StudyError
from tuner.facts import prompt_tokens
from tuner.gpus import PARALLEL_SIZES
from tuner.plan import Plan
from tuner.records import TrialRecord
from tuner.store import Store
from workloads import Block, Request

DEFAULT_OUTPUT_TOKENS = 256
"""Of a request whose recording has neither an output nor a limit."""

WARM_UP_SHARE = 1.1
"""A measurement is its replay and a short warm-up before it."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """What times are computed from.

    Attributes:
        launch_s: seconds to start and to stop an engine.
        prefill_tok_s: prompt tokens that one engine reads in a second.
        decode_tok_s: tokens that one request gets in a second.
        source: where the figures are from.
    """

    launch_s: float
    prefill_tok_s: float
    decode_tok_s: float
    source: str


ASSUMED = {
    "cpu": Speeds(60, 300, 20, "assumed for a CPU"),
    "gpu": Speeds(180, 4_000, 30, "assumed for a GPU"),
    "large_gpu": Speeds(240, 10_000, 50, "assumed for a large GPU"),
    "huge_gpu": Speeds(240, 10_000, 50, "assumed for a large GPU"),
}
"""Round figures of ours, at the slow end of what engines without speculation do; an earlier study replaces them."""


class Estimate(BaseModel):
    """What a study would take at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    search_launches: int = Field(description="launches of the search, baseline and starting points included")
    confirm_launches: int = Field(description="launches of the confirmation, at most")
    launch_hours: float = Field(description="hours of starting and stopping engines")
    replay_hours: float = Field(description="hours of measuring, warm-up included")
    hours: float = Field(description="all of it, or the budget where that is less")
    gpus: int = Field(description="GPUs that an engine holds at most; 0 on a CPU")
    gpu_hours: float = Field(description="GPU-hours")
    cost: float | None = Field(description="price of them, in the currency of the price; None without a price")
    limited_by_budget: bool = Field(description="whether the budget ends the search before its launches are used up")
    assumptions: tuple[str, ...] = Field(description="what the figures rest on")


def estimate(plan: Plan, speeds: Speeds, *, price_per_gpu_hour: float | None = None) -> Estimate:
    """Adds up launches and measurements of a plan."""
    config = plan.config
    search = min(config.trials, plan.space.size())
    finalists = min(config.finalists * len(plan.conditions), max(1, search - 1))
    confirm = config.rounds * (1 + finalists)
    per_trial_s = {
        part: sum(measurement_s(c, blocks[c.profile], speeds) for c in plan.conditions)
        for part, blocks in (("search", plan.search_blocks), ("held_out", plan.held_out_blocks))
    }
    # The baseline is confirmed under every condition, a finalist under those that it is in for.
    replay_s = search * per_trial_s["search"] + config.rounds * (1 + config.finalists) * per_trial_s["held_out"]
    launch_s = (search + confirm) * speeds.launch_s
    needed_s = launch_s + replay_s
    budget_s = config.budget_s
    hours = min(needed_s, budget_s or needed_s) / 3600
    gpus = engine_gpus(plan.space)
    return Estimate(
        search_launches=search,
        confirm_launches=confirm,
        launch_hours=launch_s / 3600,
        replay_hours=replay_s / 3600,
        hours=hours,
        gpus=gpus,
        gpu_hours=hours * gpus,
        cost=None if price_per_gpu_hour is None else hours * gpus * price_per_gpu_hour,
        limited_by_budget=budget_s is not None and budget_s < needed_s,
        assumptions=_assumptions(speeds, per_trial_s["search"] / len(plan.conditions), len(plan.conditions)),
    )


def _assumptions(speeds: Speeds, mean_s: float, conditions: int) -> tuple[str, ...]:
    starts = f"{speeds.launch_s:.0f} s to start and stop an engine (--start-time)"
    rates = f"{speeds.prefill_tok_s:.0f} prompt tokens/s, {speeds.decode_tok_s:.1f} tokens/s a request (--decode-rate)"
    return (
        f"{starts}, {rates}; {speeds.source}",
        f"a measurement takes {mean_s:.0f} s, the mean over {conditions} conditions",
        "every configuration is as fast as the baseline; faster ones make it less",
    )


def measurement_s(condition: Condition, blocks: Sequence[Block], speeds: Speeds) -> float:
    """Seconds of one measurement: an open loop takes its own time, a closed one its requests' over its places."""
    requests = [request for block in blocks for request in block.requests]
    service_s = [request_s(request, speeds) for request in requests]
    load = condition.load
    if load.kind == "concurrency":
        replay_s = max(sum(service_s) / load.value, max(service_s, default=0))
    elif load.kind == "rate":
        replay_s = len(requests) / load.value + max(service_s, default=0)
    else:
        offsets = [request.offset_s or 0.0 for request in requests]
        replay_s = (max(offsets, default=0) - min(offsets, default=0)) / load.value + max(service_s, default=0)
    return replay_s * WARM_UP_SHARE


def request_s(request: Request, speeds: Speeds) -> float:
    """Seconds that one request takes."""
    recorded = request.recorded.completion_tokens if request.recorded else None
    output = recorded or request.max_tokens or DEFAULT_OUTPUT_TOKENS
    return prompt_tokens(request) / speeds.prefill_tok_s + output / speeds.decode_tok_s


def engine_gpus(space: ResolvedSpace) -> int:
    """GPUs that an engine of the space holds at most."""
    if space.facts.device == "cpu":
        return 0
    most = max(1, len(space.facts.gpus))
    by_flag = {knob.flag: knob for knob in space.knobs.values()}
    choices = [
        by_flag[flag].values() if flag in by_flag else (space.fixed_args.get(flag, 1),) for flag in PARALLEL_SIZES
    ]
    counts = [[size for size in sizes if isinstance(size, int) and size >= 1] or [1] for sizes in choices]
    return max((size for one in itertools.product(*counts) if (size := math.prod(one)) <= most), default=1)


def speeds_for(plan: Plan, *, start_time_s: float | None = None, decode_tok_s: float | None = None) -> Speeds:
    """Figures of the newest study of the same model in the same directory, else assumed ones; options go first."""
    speeds = _measured(plan) or ASSUMED[plan.space.facts.device]
    if start_time_s is not None:
        speeds = replace(speeds, launch_s=start_time_s, source=f"--start-time, else {speeds.source}")
    if decode_tok_s is not None:
        speeds = replace(speeds, decode_tok_s=decode_tok_s, source=f"--decode-rate, {speeds.source}")
    return speeds


def _measured(plan: Plan) -> Speeds | None:
    studies = sorted(plan.config.out.glob("*/study.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((speeds for path in studies if (speeds := _speeds_of(path.parent, plan))), None)


def _speeds_of(directory: Path, plan: Plan) -> Speeds | None:
    store = Store(directory)
    try:
        config = store.config()
        if config.model != plan.config.model or config.study == plan.config.study:
            return None
        records = [record for record in store.records() if record.status == "measured"]
    except StudyError:
        return None  # another study's damage is no reason not to plan this one; `tune list` tells of it
    baseline = [record for record in records if record.plan.phase == "baseline"]
    metrics = [m.metrics for record in baseline for m in record.measurements.values() if m.valid]
    tpot = [one["tpot_mean_s"] for one in metrics if one.get("tpot_mean_s", 0) > 0]
    if not records or not tpot:
        return None
    fallback = ASSUMED[plan.space.facts.device]
    simulated = ", simulated" if any(record.simulated for record in records) else ""
    return Speeds(
        launch_s=statistics.fmean(map(_launch_s, records)),
        prefill_tok_s=fallback.prefill_tok_s,
        decode_tok_s=1 / statistics.fmean(tpot),
        source=f"starts and decoding as measured in the study {config.study}{simulated}, prompts {fallback.source}",
    )


def _launch_s(record: TrialRecord) -> float:
    return record.seconds.get(ENGINE_START, 0.0) + record.seconds.get(ENGINE_STOP, 0.0)
