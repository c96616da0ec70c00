"""Is a configuration still as good as it was? Two configurations, interleaved on the held-out traffic of this host.

The contender is an exported config, the reference what it is compared with. Each round launches both afresh,
every other round in the opposite order, as the confirmation of a study does; verdict and interval come from the same
statistics. Searches nothing and recommends nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from runners import reap_engines
from search_spaces import ResolvedSpace, ServeConfig, check_draft_fits, read_checkpoint
from tuner import host
from tuner.baseline import read_baseline
from tuner.breakdown import Breakdown
from tuner.conditions import Condition
from tuner.config import TuneConfig
from tuner.engine_choice import choose_runner
from tuner.errors import InvalidMeasurementsError, NoEngineError, UsageError
from tuner.gpus import find_gpus
from tuner.objective import Objective
from tuner.output_check import check_outputs
from tuner.plan import make_plan
from tuner.recommend import block_ratios
from tuner.records import Effect, Measurement, OutputCheck, Recommendation, Strict, TrialPlan, TrialRecord
from tuner.stats import paired_gain
from tuner.store import Store
from tuner.trial import Bench, run_trial, study_marker

BASELINE = "baseline"


class Verdict(Strict):
    """The comparison under one condition."""

    condition: str = Field(description="key of the condition")
    contender: str = Field(description="the configuration in short")
    reference: str = Field(description="what it was compared with")
    verdict: Literal["better", "same", "worse"] = Field(
        description="better or worse when the interval lies on one side of 1, worse also when outputs changed"
    )
    effect: Effect = Field(description="gain of the contender over the reference")
    earlier: Effect | None = Field(description="what the study that exported it had measured; None where not known")
    outputs: OutputCheck = Field(description="greedy outputs of the contender against the reference's")
    acceptance_length: float | None = Field(description="tokens per step of the contender; None without speculation")
    reference_acceptance_length: float | None = Field(description="the same of the reference")


async def verify(
    config: TuneConfig, serve: Path, *, against: str, new_draft: str | None, say: Callable[[str], None]
) -> list[Verdict]:
    """Measures both configurations and compares them.

    Args:
        config: workload, engine, load and so on, as for a study; its `draft` is the file's own.
        serve: exported `serve.yaml`.
        against: "baseline" for vLLM's defaults without speculation, or another YAML.
        new_draft: the draft to compare with the file's own, which is the reference then.
        say: takes lines of progress.

    Raises:
        UsageError, WorkloadError, SearchSpaceError: something given cannot be used.
        NoEngineError: one of the two cannot be launched or measured.
        InvalidMeasurementsError: fewer than two rounds are valid and have the objective.
    """
    plan = make_plan(config)
    if new_draft is not None:
        check_draft_fits(read_checkpoint(new_draft), read_checkpoint(config.model), plain=False)
    contender, reference = _configs(plan.space, plan.baseline, serve, against, new_draft)
    earlier = _earlier(serve) if new_draft is None and against == BASELINE else {}
    store = Store.create(config)
    bench = Bench(
        plan,
        store,
        choose_runner(config, with_gpus=bool(plan.gpus)),
        Breakdown(),
        say,
        lambda _: None,
        find_gpus(config),
    )
    records: dict[str, list[TrialRecord]] = {contender.id: [], reference.id: []}
    with store.lock():
        reap_engines(study_marker(plan))
        store.write_provenance(
            host.provenance(plan.gpus, engine_version=plan.engine_version, workload_digest=plan.workload.digest)
        )
        for number in range(config.rounds):
            pair = (reference, contender) if number % 2 == 0 else (contender, reference)
            for one in pair:
                records[one.id].append(await _launch(bench, one, number))
    return [
        _verdict(
            condition,
            records[contender.id],
            records[reference.id],
            plan.objective,
            confidence=config.confidence,
            earlier=earlier,
        )
        for condition in plan.conditions
    ]


def draft_of(serve: Path) -> str | None:
    """The draft that a serve config names; None without one.

    Raises:
        UsageError: the file cannot be read.
    """
    model = _speculative(_flags(serve)).get("model")
    return str(model) if model else None


def _flags(path: Path) -> dict[str, object]:
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read ({' '.join(str(error).split())}); name a serve.yaml") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: is no mapping of vLLM flags; name a serve.yaml, as `tune export` writes it")
    return document


def _speculative(flags: dict[str, object]) -> dict[str, object]:
    found = flags.get("speculative-config", flags.get("speculative_config"))
    return found if isinstance(found, dict) else {}


def _configs(
    space: ResolvedSpace, baseline: ServeConfig, serve: Path, against: str, new_draft: str | None
) -> tuple[ServeConfig, ServeConfig]:
    own = read_baseline(serve, space)
    if new_draft is not None:
        speculative = own.tuned_args.get("speculative-config")
        if not isinstance(speculative, dict):
            raise UsageError(f"{serve} does not speculate, so --draft has nothing to replace; name another serve.yaml")
        changed = {**own.tuned_args, "speculative-config": {**speculative, "model": new_draft}}
        contender = own.model_copy(
            update={"tuned_args": changed, "identity": {**own.identity, "draft": Path(new_draft).name}}
        )
        reference = own
    else:
        contender = own
        reference = baseline if against == BASELINE else read_baseline(Path(against), space)
    # Either may tell: a default that is spelt out is no other engine, nor is another name of the same draft.
    if contender.id == reference.id or contender.engine_args == reference.engine_args:
        raise UsageError(f"{serve} starts the same engine as what it is compared with; choose another --against")
    return contender, reference


async def _launch(bench: Bench, config: ServeConfig, number: int) -> TrialRecord:
    plan = TrialPlan(
        number=len(bench.store.plans()),
        step=f"confirm/{number}/{config.id}",
        phase="confirm",
        asked_by=None,
        temperature=None,
        serve_config=config,
        conditions=tuple(condition.key for condition in bench.plan.conditions),
    )
    bench.store.write_plan(plan)
    bench.say(f"round {number + 1}: {config.label()}")
    record = await run_trial(bench, plan)
    if record.status != "measured":
        reason = record.failure.message if record.failure else "not every condition could be measured"
        log = bench.store.trial_directory(plan.number) / "engine.log"
        raise NoEngineError(f"{config.label()} cannot be measured: {reason} (engine log: {log})")
    return record


def _verdict(
    condition: Condition,
    contender: list[TrialRecord],
    reference: list[TrialRecord],
    objective: Objective,
    *,
    confidence: float,
    earlier: dict[str, Effect],
) -> Verdict:
    rounds = [
        (ours.measurements[condition.key], theirs.measurements[condition.key])
        for ours, theirs in zip(contender, reference, strict=True)
    ]
    measured = [(*pair, block_ratios(*pair, objective)) for pair in rounds if pair[0].valid and pair[1].valid]
    valid = [(ours, theirs) for ours, theirs, ratios in measured if np.isfinite(ratios).any()]
    if len(valid) < 2:
        problems = [problem for pair in rounds for one in pair for problem in one.problems]
        problems.append(f"no block of theirs has {objective.metric} on both sides")
        raise InvalidMeasurementsError(
            f"{condition.key}: {len(valid)} of {len(rounds)} rounds are valid and two are needed; "
            f"first problem: {problems[0]}; quiet the host or lower --load"
        )
    ratios = np.array([ratios for _, _, ratios in measured])
    interval = paired_gain(ratios, confidence=confidence)
    outputs = check_outputs([ours.greedy_outputs for ours, _ in valid], [theirs.greedy_outputs for _, theirs in valid])
    worse = interval.high < 1 or outputs.verdict == "changed"
    return Verdict(
        condition=condition.key,
        contender=contender[0].plan.serve_config.label(),
        reference=reference[0].plan.serve_config.label(),
        verdict="worse" if worse else "better" if interval.low > 1 else "same",
        effect=Effect(
            gain=interval.gain, low=interval.low, high=interval.high, confidence=confidence, pairs=interval.pairs
        ),
        earlier=earlier.get(condition.key),
        outputs=outputs,
        acceptance_length=_mean([ours for ours, _ in valid], "acceptance_length"),
        reference_acceptance_length=_mean([theirs for _, theirs in valid], "acceptance_length"),
    )


def _mean(measurements: list[Measurement], name: str) -> float | None:
    values = [m.metrics[name] for m in measurements if name in m.metrics]
    return sum(values) / len(values) if values else None


def _earlier(serve: Path) -> dict[str, Effect]:
    """The effect that the study measured, from the recommendation that lies beside its serve.yaml.

    Raises:
        UsageError: the recommendation cannot be read.
    """
    path = serve.with_name("recommendation.json")
    if not path.is_file():
        return {}
    try:
        answer = Recommendation.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{path}: cannot be read as a recommendation of this version ({' '.join(str(error).split())[:200]}); "
            f"move it away to verify {serve.name} without the study's figure, or export again"
        ) from error
    return {answer.condition: answer.effect} if answer.effect else {}
