"""`tune plan`: what a study would do, refuse and cost. Starts no engine."""

import json as jsonlib
from typing import Annotated

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field

from search_spaces import Gpu, notes
from tuner.commands.options import Debug, Json, parse_duration
from tuner.commands.study_options import StudyOptions
from tuner.console import Narrator
from tuner.errors import UsageError
from tuner.estimate import Estimate, estimate, speeds_for
from tuner.facts import parse_gpus
from tuner.plan import Plan, make_plan

LOOKED_AT = 5_000
"""Combinations that are judged; larger spaces are judged by that many spread over them."""


class Refused(BaseModel):
    """What one rule refuses."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str = Field(description="name of the rule")
    combinations: int = Field(description="combinations that it refuses first, of those that were looked at")
    share: float = Field(description="their share")
    example: str = Field(description="the reason for one of them")


class StartingPoint(BaseModel):
    """A configuration that is launched before the search."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str = Field(description="its name in the study")
    label: str = Field(description="what it is")
    refused: str | None = Field(description="why it is left out")


class PlanReport(BaseModel):
    """The plan as `--json` prints it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine_version: str = Field(description="vLLM that is planned for")
    gpus: tuple[str, ...] = Field(description="GPUs that are planned for; empty on a CPU")
    space: str = Field(description="name of the search space")
    knobs: dict[str, tuple[bool | int | float | str | None, ...]] = Field(description="tunable knobs and their values")
    combinations: int = Field(description="size of the space, dead knobs included")
    looked_at: int = Field(description="combinations that rules were asked about")
    conditions: tuple[str, ...] = Field(description="what each launch is measured under")
    left_out: dict[str, str] = Field(description="knobs or values that are not offered here, and why")
    refused: tuple[Refused, ...] = Field(description="what rules refuse, the most first")
    starting_points: tuple[StartingPoint, ...] = Field(description="what is launched before the search")
    notes: tuple[str, ...] = Field(description="what else to know")
    warnings: tuple[str, ...] = Field(description="what may not be as expected")
    estimate: Estimate = Field(description="launches, hours and cost")


def plan(
    options: StudyOptions,
    *,
    gpu: Annotated[
        str | None,
        Parameter(help="Plan for other GPUs than this host's: COUNTxMEMORY@CAPABILITY such as 4x24GiB@8.9."),
    ] = None,
    price_per_gpu_hour: Annotated[float | None, Parameter(help="Price of a GPU-hour, for the cost.")] = None,
    start_time: Annotated[str | None, Parameter(help="Assumed time to start and stop an engine, such as 3m.")] = None,
    decode_rate: Annotated[float | None, Parameter(help="Assumed tokens per second for each request.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show what a study would launch, what is refused and why, and what it would cost; starts no engine."""
    del debug
    for name, value in (("--price-per-gpu-hour", price_per_gpu_hour), ("--decode-rate", decode_rate)):
        if value is not None and value <= 0:
            raise UsageError(f"{name} {value:g} must be above 0")
    made = make_plan(options.config(), assumed_gpus=parse_gpus(gpu) if gpu else None)
    speeds = speeds_for(
        made,
        start_time_s=parse_duration("--start-time", start_time) if start_time else None,
        decode_tok_s=decode_rate,
    )
    report = report_of(made, estimate(made, speeds, price_per_gpu_hour=price_per_gpu_hour))
    if json:
        print(jsonlib.dumps(report.model_dump(mode="json"), indent=2))
    else:
        show(made, report, Narrator())
    return 0


def report_of(made: Plan, expected: Estimate) -> PlanReport:
    """Everything that is known about a plan."""
    space = made.space
    looked_at = min(space.size(), LOOKED_AT)
    refused = [
        Refused(rule=rule, combinations=count, share=count / looked_at, example=reason)
        for rule, (count, reason) in space.refused(LOOKED_AT).items()
    ]
    return PlanReport(
        engine_version=made.engine_version,
        gpus=tuple(map(_described, space.facts.gpus)),
        space=space.name,
        knobs={name: knob.values() for name, knob in space.tunable().items()},
        combinations=space.size(),
        looked_at=looked_at,
        conditions=tuple(condition.key for condition in made.conditions),
        left_out=space.left_out,
        refused=tuple(sorted(refused, key=lambda one: -one.combinations)),
        starting_points=_starting_points(made),
        notes=notes(space),
        warnings=made.warnings,
        estimate=expected,
    )


def _starting_points(made: Plan) -> tuple[StartingPoint, ...]:
    space, recipe = made.space, made.space.recipe()
    points = [("recipe", recipe)] if recipe is not None else []
    points += [(f"seed/{number}", space.starting_point(seed)) for number, seed in enumerate(space.seeds)]
    baseline = made.baseline
    shown = [StartingPoint(step="baseline", label=baseline.label(), refused=space.refusal(baseline.values))]
    shown += [
        StartingPoint(step=step, label=space.serve_config(values).label(), refused=space.refusal(values))
        for step, values in points
    ]
    return tuple(shown)


def show(made: Plan, report: PlanReport, narrator: Narrator) -> None:
    """Prints a plan for a person."""
    narrator.plan(made)
    if report.gpus:
        narrator.line(f"gpus        {len(report.gpus)}: {report.gpus[0]}")
    for name, values in report.knobs.items():
        narrator.line(f"  knob      {name}: {_listed(values)}")
    for name, reason in report.left_out.items():
        narrator.line(f"left out    {name}: {reason}")
    of = f"{report.looked_at}" if report.looked_at == report.combinations else f"a sample of {report.looked_at}"
    for one in report.refused:
        narrator.line(f"refused     {one.combinations} of {of} ({one.share:.0%}): {one.example}")
    for point in report.starting_points:
        narrator.line(
            f"start       {point.step}: {point.label}" + (f" (refused: {point.refused})" if point.refused else "")
        )
    for note in report.notes:
        narrator.line(f"note        {note}")
    expected = report.estimate
    narrator.line(
        f"estimate    {expected.search_launches} launches to search, at most {expected.confirm_launches} to confirm; "
        f"{expected.hours:.1f} h ({expected.launch_hours:.1f} h starting, {expected.replay_hours:.1f} h measuring)"
        + (", ended by --budget" if expected.limited_by_budget else "")
    )
    if expected.gpus:
        cost = "" if expected.cost is None else f", cost {expected.cost:.2f}"
        narrator.line(f"            {expected.gpu_hours:.1f} GPU-hours on {expected.gpus} GPUs an engine{cost}")
    for assumption in expected.assumptions:
        narrator.line(f"assumed     {assumption}")


def _described(gpu: Gpu) -> str:
    capability = gpu.compute_capability
    generation = f", compute capability {capability[0]}.{capability[1]}" if capability else ""
    return f"{gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB{generation}"


def _listed(values: tuple[object, ...]) -> str:
    if len(values) > 8 and all(isinstance(value, int) for value in values):
        return f"{values[0]} to {values[-1]}"
    return ", ".join("engine's choice" if value is None else str(value) for value in values)
