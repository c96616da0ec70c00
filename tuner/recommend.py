"""From trial records to answers: who is confirmed, what is recommended for each condition, how sure, and why. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces import ServeConfig
from tuner.conditions import Condition
from tuner.objective import Objective
from tuner.output_check import check_outputs
from tuner.records import Effect, Measurement, OutputCheck, Recommendation, TrialPlan, TrialRecord
from tuner.rules import Rules, meets_slos
from tuner.stats import paired_gain


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One finalist with everything the confirmation says about it."""

    trials: list[TrialRecord]
    measurements: list[Measurement]
    effect: Effect
    outputs: OutputCheck
    slo_met: bool

    @property
    def acceptable(self) -> bool:
        return self.slo_met and self.outputs.verdict != "changed"


def recommend(condition: Condition, records: Sequence[TrialRecord], rules: Rules) -> Recommendation:
    """The answer for one condition, from the confirmation's records alone.

    Raises:
        ValueError: the confirmation holds no valid measurement of the baseline.
    """
    confirmed = [r for r in records if r.plan.phase == "confirm"]
    first = next(r for r in records if r.plan.phase == "baseline")
    baseline = [r for r in confirmed if _entrant(r) == _entrant(first)]
    base = _valid(baseline, condition.key)
    if not base:
        raise ValueError(f"condition {condition.key!r}: no valid confirmation of the baseline")
    others = _by_config([r for r in confirmed if r not in baseline and condition.key in r.plan.conditions])
    corrected = 1 - (1 - rules.confidence) / max(1, len(others))
    candidates = [
        found
        for trials in others.values()
        if (found := _candidate(trials, base, condition.key, rules, confidence=corrected))
    ]
    reliable = [c for c in candidates if c.acceptable and c.effect.low > 1]
    best = max(reliable or candidates, key=lambda c: (c.acceptable, c.effect.gain), default=None)
    base_meets = all(meets_slos(m, rules) for m in base.values())
    if best is not None and best.acceptable and (best.effect.low > 1 or not base_meets):
        return _change(condition, best, baseline, base, rules)
    return _stay(condition, best, baseline, base, rules, base_meets=base_meets, unconfirmed=len(others))


def _change(
    condition: Condition,
    best: _Candidate,
    baseline: list[TrialRecord],
    base: Mapping[int, Measurement],
    rules: Rules,
) -> Recommendation:
    metrics, base_metrics = _mean_metrics(best.measurements), _mean_metrics(base.values())
    config = _with_temperature(best.trials[0].plan)
    return Recommendation(
        condition=condition.key,
        profile=condition.profile,
        verdict="change",
        serve_config=config,
        baseline=baseline[0].plan.serve_config,
        objective=rules.objective.metric,
        value=metrics[rules.objective.metric],
        baseline_value=base_metrics[rules.objective.metric],
        effect=best.effect,
        best_candidate=config.label(),
        output_check=best.outputs,
        slo_met=best.slo_met,
        reason=_reason(metrics, base_metrics),
        caveats=_caveats(best, rules),
        trials=tuple(r.plan.number for r in (*best.trials, *baseline)),
        metrics=metrics,
        simulated=any(r.simulated for r in baseline),
    )


def _with_temperature(trial: TrialPlan) -> ServeConfig:
    """A searched temperature becomes the engine's default, for requests that name none."""
    if trial.temperature is None:
        return trial.serve_config
    tuned = {**trial.serve_config.tuned_args, "override-generation-config": {"temperature": trial.temperature}}
    return trial.serve_config.model_copy(update={"tuned_args": tuned})


def _stay(
    condition: Condition,
    best: _Candidate | None,
    baseline: list[TrialRecord],
    base: Mapping[int, Measurement],
    rules: Rules,
    *,
    base_meets: bool,
    unconfirmed: int,
) -> Recommendation:
    metrics = _mean_metrics(base.values())
    config = baseline[0].plan.serve_config
    if best is None and unconfirmed:
        reason = f"no candidate of {unconfirmed} has two valid confirmation rounds beside the baseline's"
    elif best is None:
        reason = "no configuration of the search did better than the baseline"
    elif best.outputs.verdict == "changed":
        o = best.outputs
        reason = (
            f"the best candidate changed the output: only {o.identical} of {o.compared} greedy outputs are identical"
        )
    elif not best.slo_met:
        reason = "the best candidate does not meet the SLO"
    else:
        e = best.effect
        reason = f"the best candidate's gain of {e.gain:.2f}x is not reliable (interval {e.low:.2f} to {e.high:.2f})"
    return Recommendation(
        condition=condition.key,
        profile=condition.profile,
        verdict="keep" if best is None and not unconfirmed else "no reliable gain",
        serve_config=config,
        baseline=config,
        objective=rules.objective.metric,
        value=metrics[rules.objective.metric],
        baseline_value=metrics[rules.objective.metric],
        effect=None,
        best_candidate=best.trials[0].plan.serve_config.label() if best else "none",
        output_check=best.outputs if best else None,
        slo_met=base_meets,
        reason=reason,
        caveats=(),
        trials=tuple(r.plan.number for r in (*(best.trials if best else ()), *baseline)),
        metrics=metrics,
        simulated=any(r.simulated for r in baseline),
    )


def _paired(
    trials: list[TrialRecord], base: Mapping[int, Measurement], condition: str, objective: Objective
) -> NDArray[np.float64]:
    """Ratios of a candidate to the baseline, shape (rounds, blocks); NaN where a block was not measured."""
    found = _valid(trials, condition)
    rounds = sorted(set(found) & set(base))
    return np.array([block_ratios(found[r], base[r], objective) for r in rounds])


def _candidate(
    trials: list[TrialRecord],
    base: Mapping[int, Measurement],
    condition: str,
    rules: Rules,
    *,
    confidence: float,
) -> _Candidate | None:
    found = _valid(trials, condition)
    rounds = sorted(set(found) & set(base))
    ratios = _paired(trials, base, condition, rules.objective)
    if not len(ratios) or np.isfinite(ratios).any(axis=-1).sum() < 2:
        # One launch says nothing about how much launches differ.
        return None
    interval = paired_gain(ratios, confidence=confidence)
    return _Candidate(
        trials=trials,
        measurements=[found[r] for r in rounds],
        effect=Effect(
            gain=interval.gain, low=interval.low, high=interval.high, confidence=confidence, pairs=interval.pairs
        ),
        outputs=check_outputs(
            [found[r].greedy_outputs for r in rounds], [base[r].greedy_outputs for r in sorted(base)]
        ),
        slo_met=all(meets_slos(found[r], rules) for r in rounds),
    )


def block_ratios(candidate: Measurement, baseline: Measurement, objective: Objective) -> list[float]:
    """How many times better the candidate is, by block of the baseline; nan where one of them has no figure."""
    theirs = {b.block: b.metrics.get(objective.metric, math.nan) for b in baseline.blocks}
    ours = {b.block: b.metrics.get(objective.metric, math.nan) for b in candidate.blocks}
    ratios = []
    for block, base in theirs.items():
        value = ours.get(block, math.nan)
        usable = value > 0 and base > 0
        ratios.append(objective.gain(value, base) if usable else math.nan)
    return ratios


def _valid(trials: Sequence[TrialRecord], condition: str) -> dict[int, Measurement]:
    """Valid measurements of the condition by confirmation round."""
    return {
        int(r.plan.step.split("/")[1]): r.measurements[condition]
        for r in trials
        if condition in r.measurements and r.measurements[condition].valid
    }


def _by_config(records: Sequence[TrialRecord]) -> dict[str, list[TrialRecord]]:
    grouped: dict[str, list[TrialRecord]] = {}
    for record in records:
        grouped.setdefault(_entrant(record), []).append(record)
    return grouped


def _entrant(record: TrialRecord) -> str:
    """What is compared: a configuration, at its own temperature where that is searched."""
    return f"{record.plan.serve_config.id}/{record.plan.temperature}"


def _mean_metrics(measurements: Iterable[Measurement]) -> dict[str, float]:
    rows = [m.metrics for m in measurements]
    names = {name for row in rows for name in row}
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in sorted(names)}


def _reason(metrics: Mapping[str, float], base: Mapping[str, float]) -> str:
    """What the counters say about where the gain comes from."""
    parts = []
    if "acceptance_length" in metrics:
        parts.append(
            f"each verification step yields {metrics['acceptance_length']:.2f} tokens "
            f"({metrics['acceptance_rate']:.0%} of drafted tokens accepted)"
        )
    for name, label in (("tpot_p50_s", "median TPOT"), ("ttft_p50_s", "median TTFT")):
        if name in metrics and name in base:
            parts.append(f"{label} {base[name] * 1000:.1f} -> {metrics[name] * 1000:.1f} ms")
    hits, base_hits = metrics.get("prefix_hit_rate"), base.get("prefix_hit_rate")
    if hits is not None and max(hits, base_hits or 0) > 0.02:
        before = f"{base_hits:.0%}" if base_hits is not None else "none"
        parts.append(f"prefix hit rate {before} -> {hits:.0%}")
    return "; ".join(parts)


def _caveats(best: _Candidate, rules: Rules) -> tuple[str, ...]:
    caveats = []
    check = best.outputs
    if check.verdict == "not comparable":
        caveats.append("no request at temperature 0: outputs could not be compared with the baseline's")
    if check.verdict == "within calibration":
        share = check.calibration_identical or 0
        same = f"{check.identical} of {check.compared}"
        caveats.append(f"{same} greedy outputs are identical; the baseline itself repeats {share:.0%}")
    if len(best.measurements) < 3:
        caveats.append(f"confirmed in {len(best.measurements)} rounds only; more rounds narrow the interval")
    if rules.temperature_searched:
        caveats.append("temperature was part of the search: it changes what the model says, not only how fast")
    return tuple(caveats)
