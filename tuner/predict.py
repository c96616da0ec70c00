"""Predicts the speed of draft lengths that were not measured, from those that were.

One run at the largest K gives the acceptance curve: p_k, the share of drafts whose position k was accepted, so that a
shorter K yields AL(K) = 1 + p_1 + ... + p_K tokens per step. Time per step is fitted, by non-negative least squares,
as a constant, a part for each query token B x (K + 1) and a part for drafting at all; what the fit leaves at measured
K is carried to the K between them. Both are guesses: drafts trained at one length accept less at others, and step time
may come in stairs. So predictions seed the search and are its prior, each further K corrects them, and the study says
how far each was off; they are never an answer.

Closed loop, per request of n tokens: throughput = B n / (TTFT + (n - 1) TPOT), TPOT = step / AL.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces import ResolvedSpace, Scalar
from tuner.records import Measurement, TrialRecord

K_KNOB = "num_speculative_tokens"


@dataclass(frozen=True, slots=True)
class Run:
    """What one measurement says about one draft length."""

    k: int
    running: float
    """Mean number of requests that were computed at once."""
    tpot_s: float
    ttft_s: float
    tokens: float
    """Output tokens per request."""
    accepted_at: tuple[float, ...]
    """p_1 ... p_K; empty without speculation."""

    @property
    def acceptance_length(self) -> float:
        """Tokens per step."""
        return 1.0 + sum(self.accepted_at)

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return self.tpot_s * self.acceptance_length


@dataclass(frozen=True, slots=True)
class Prediction:
    """One draft length under one condition."""

    tpot_s: float
    e2e_s: float
    throughput_tok_s: float

    def metric(self, name: str) -> float | None:
        """The predicted value of a metric; None for one that is not predicted, as percentiles are not."""
        return {
            "output_tok_s": self.throughput_tok_s,
            "tpot_mean_s": self.tpot_s,
            "e2e_mean_s": self.e2e_s,
        }.get(name)


@dataclass(frozen=True, slots=True)
class PredictionError:
    """How far a prediction was off, once its K was measured."""

    condition: str
    k: int
    metric: str
    predicted: float
    measured: float

    @property
    def relative(self) -> float:
        """Signed: 0.1 is a prediction 10% too high."""
        return self.predicted / self.measured - 1.0


class Predictor:
    """Predictions from what has been measured so far.

    Args:
        records: finished trials; the first measurement of each K under each condition is used, so that it is the one
            nearest the baseline in everything else.
        method: the speculative method whose K is predicted.
    """

    def __init__(self, records: Sequence[TrialRecord], *, method: str) -> None:
        self._runs: dict[str, dict[int, Run]] = {}
        for record in records:
            k = length_of(record.effective(), method)
            for condition, measurement in record.measurements.items():
                run = _run(k, measurement) if k is not None and record.plan.phase != "confirm" else None
                if run is not None:
                    self._runs.setdefault(condition, {}).setdefault(run.k, run)
        self._weights = _fit([run for runs in self._runs.values() for run in runs.values()])

    def predict(self, condition: str, k: int) -> Prediction | None:
        """The speed of a draft length; None before the condition was measured without and with speculation."""
        runs = self._runs.get(condition, {})
        if 0 not in runs or len(runs) < 2 or self._weights is None:
            return None
        nearest = runs[min(runs, key=lambda measured: (measured < k, abs(measured - k)))]
        step_s = _step_s(self._weights, nearest.running, k) * _residual(self._weights, runs, k)
        tpot_s = step_s / _acceptance_length(runs, k)
        e2e_s = nearest.ttft_s + max(0.0, nearest.tokens - 1) * tpot_s
        return Prediction(tpot_s, e2e_s, nearest.running * nearest.tokens / e2e_s)

    def log_gain(self, condition: str, k: int, metric: str) -> float:
        """log(how many times better than without speculation) for a metric; 0 where nothing is predicted.

        A percentile is taken to gain as its mean does.
        """
        mine, base, name = self.predict(condition, k), self.predict(condition, 0), predicted_metric(metric)
        value = mine.metric(name) if mine else None
        without = base.metric(name) if base else None
        if value is None or without is None or value <= 0 or without <= 0:
            return 0.0
        gain = math.log(value / without)
        return gain if metric == "output_tok_s" else -gain

    def best(self, condition: str, lengths: Sequence[int], metric: str) -> int | None:
        """The length, 0 included, with the highest predicted gain; None where nothing is predicted."""
        if self.predict(condition, 0) is None:
            return None
        return max((0, *lengths), key=lambda k: (self.log_gain(condition, k, metric), -k))


def recipe_method(space: ResolvedSpace) -> str | None:
    """The speculative method whose draft length is predicted: that of the space's recipe."""
    recipe = space.recipe()
    return str(recipe["method"]) if recipe and recipe.get("method") else None


def length_of(values: Mapping[str, Scalar], method: str) -> int | None:
    """K of knob values, 0 without speculation; None for another method."""
    asked = values.get("method", "none")
    if asked in (None, "none"):
        return 0
    k = values.get(K_KNOB)
    return k if asked == method and isinstance(k, int) else None


def predicted_metric(objective: str) -> str:
    """What is predicted in place of an objective's metric: of a latency the mean, whichever percentile is wanted."""
    return objective if objective == "output_tok_s" else f"{objective.rsplit('_', maxsplit=2)[0]}_mean_s"


def prediction_errors(
    record: TrialRecord, before: Sequence[TrialRecord], *, method: str, objective: str
) -> list[PredictionError]:
    """What the trials before it predicted for a trial's K, against what it measured; empty where K was known.

    Args:
        record: the trial.
        before: the trials before it, in order.
        method: the speculative method whose K is predicted.
        objective: name of the objective's metric.
    """
    k, metric = length_of(record.effective(), method), predicted_metric(objective)
    if k is None or record.plan.phase == "confirm":
        return []
    known = {c for r in before if length_of(r.effective(), method) == k for c in r.measurements}
    new = {c: m for c, m in record.measurements.items() if c not in known and m.valid}
    predictor = Predictor(before if new else (), method=method)
    errors = []
    for condition, measurement in new.items():
        prediction, measured = predictor.predict(condition, k), measurement.metrics.get(metric)
        predicted = prediction.metric(metric) if prediction else None
        if predicted is not None and measured:
            errors.append(PredictionError(condition, k, metric, predicted, measured))
    return errors


def _run(k: int, measurement: Measurement) -> Run | None:
    metrics = measurement.metrics
    accepted = tuple(metrics[f"accepted_at_{i:02d}"] for i in range(1, k + 1) if f"accepted_at_{i:02d}" in metrics)
    needed = ("running_mean", "tpot_mean_s", "ttft_mean_s", "completion_tokens", "requests")
    if not measurement.valid or len(accepted) != k or any(metrics.get(name, 0.0) <= 0 for name in needed):
        return None
    return Run(
        k=k,
        running=metrics["running_mean"],
        tpot_s=metrics["tpot_mean_s"],
        ttft_s=metrics["ttft_mean_s"],
        tokens=metrics["completion_tokens"] / metrics["requests"],
        accepted_at=accepted,
    )


def _features(running: float, k: int) -> list[float]:
    return [1.0, running * (k + 1), running, float(k > 0), running * float(k > 0)]


def _fit(runs: Sequence[Run]) -> list[float] | None:
    """Non-negative weights of the features, by relative error of the step time."""
    from scipy.optimize import nnls  # half a second that a study without speculation need not pay

    if not any(run.k for run in runs):
        return None
    rows = np.array([_features(run.running, run.k) for run in runs])
    steps_s = np.array([run.step_s for run in runs])
    weights, _ = nnls(rows / steps_s[:, None], np.ones(len(runs)))
    return [float(weight) for weight in weights]


def _step_s(weights: Sequence[float], running: float, k: int) -> float:
    fitted = sum(weight * feature for weight, feature in zip(weights, _features(running, k), strict=True))
    return max(fitted, 1e-9)


def _residual(weights: Sequence[float], runs: dict[int, Run], k: int) -> float:
    """Measured over fitted step time, carried to K from the measured lengths around it."""
    speculating = sorted(length for length in runs if length) if k else [0]
    logs = [math.log(runs[n].step_s / _step_s(weights, runs[n].running, n)) for n in speculating]
    return math.exp(float(np.interp(k, speculating, logs)))


def _acceptance_length(runs: dict[int, Run], k: int) -> float:
    """Tokens per step at K: by the curves of the measured lengths above and below it."""
    if k == 0:
        return 1.0
    longer = min((n for n in runs if n >= k), default=max(runs))
    summed = 1.0 + sum(runs[longer].accepted_at[:k])
    shorter = max((n for n in runs if 0 < n < k), default=0)
    if not shorter or longer < k:
        return summed
    # How much more the shorter run accepted than the longer run's curve said fades towards the longer one.
    expected = 1.0 + sum(runs[longer].accepted_at[:shorter])
    weight = (longer - k) / (longer - shorter)
    return float(summed * (runs[shorter].acceptance_length / expected) ** weight)
