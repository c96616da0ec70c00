"""Optuna's sampler interface around the surrogate: the best expected improvement among what is allowed and untried."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search_spaces import Scalar
from tuner.search.candidates import Candidate, Candidates
from tuner.search.names import LAUNCH
from tuner.search.surrogate import Array, Surrogate, expected_improvement
from tuner.search.warm_start import NOISE as HINT_NOISE

NOISE = 0.02
"""Run-to-run noise of an engine in log units: 1 to 3 percent."""
FAILURE_PRIOR = (1.5, 0.25)
"""Launches that went well, and that did not, which are assumed for every knob value before any is seen."""
ORDINAL_REACH = 0.1
"""How far a failure speaks for the neighbours of an ordered value, on the scale of candidates.py."""

Prior = Callable[[Mapping[str, Scalar]], float]


@dataclass(frozen=True, slots=True)
class _Measured:
    """Launches as the surrogate sees them."""

    points: Array
    values: Array
    prior: Array


class SurrogateSampler(optuna.samplers.BaseSampler):
    """Proposes the untried candidate with the highest expected improvement under all constraints.

    Args:
        candidates: what may be proposed.
        tried: keys of candidates that were launched.
        prior: the predicted log gain of parameters, 0 where nothing is known.
        seed: breaks ties.
        hints: parameters with the log gain over the baseline that an earlier study saw (warm_start.py).
    """

    def __init__(
        self,
        candidates: Candidates,
        *,
        tried: AbstractSet[tuple[str, Scalar]],
        prior: Prior,
        seed: int,
        hints: Sequence[tuple[Mapping[str, Scalar], float]] = (),
    ) -> None:
        self._candidates = candidates
        self._open = np.array([c.key not in tried for c in candidates.all], dtype=bool)
        self._prior = prior
        self._rng = np.random.default_rng(seed)
        self._hints = tuple(hints)
        self._fallback = optuna.samplers.RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every parameter is proposed together."""
        del study
        return dict(trial.distributions) or dict(self._candidates.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The best candidate's parameters; empty when none is left."""
        del trial, search_space
        best = self.best(study)
        return dict(best[0].params) if best else {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Only reached when no candidate is left."""
        return self._fallback.sample_independent(study, trial, param_name, param_distribution)

    def best(self, study: optuna.Study) -> tuple[Candidate, float] | None:
        """The untried candidate with the highest expected improvement, and that improvement in log units."""
        if not self._open.any():
            return None
        scores = np.where(self._open, self._scores(study), -np.inf)
        top = np.flatnonzero(scores >= scores.max() - 1e-12)
        index = int(self._rng.choice(top))
        return self._candidates.all[index], float(scores[index])

    def believed(self, study: optuna.Study) -> dict[int, float]:
        """Trial number -> mean log value, better upwards, of every configuration that was measured."""
        launched = _launched(study)
        if not launched:
            return {}
        measured = self._measured(study, launched)
        means = self._fit(launched, measured).believe(measured.points, measured.prior).mean
        numbers = [int(t.user_attrs["trial"]) for t in launched]
        return dict(zip(numbers, map(float, means), strict=True))

    def _scores(self, study: optuna.Study) -> Array:
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        priors = np.array([self._prior(c.params) for c in self._candidates.all])
        launched, survival = _launched(study), self._survival(told)
        if not launched:
            return survival * (1.0 + priors)
        measured = self._measured(study, launched)
        meets = np.array([all(v <= 0 for v in t.constraints.values()) for t in launched])
        chance = self._chance(launched, measured.points, priors) * survival
        if not meets.any():
            return chance
        model = self._fit(launched, measured)
        # What the surrogate believes of the best one, not its luckiest measurement.
        incumbent = float(model.believe(measured.points, measured.prior).mean[meets].max())
        return expected_improvement(model.believe(self._candidates.points, priors), incumbent) * chance

    def _measured(self, study: optuna.Study, launched: Sequence[FrozenTrial]) -> _Measured:
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        return _Measured(
            points=np.array([self._candidates.point(t.params) for t in launched]),
            values=np.array([sign * np.log(t.value or 1.0) for t in launched]),
            prior=np.array([self._prior(t.params) for t in launched]),
        )

    def _fit(self, launched: Sequence[FrozenTrial], measured: _Measured) -> Surrogate:
        """From this study's launches, and an earlier study's as far as a baseline makes them comparable."""
        points, values, prior = measured.points, measured.values, measured.prior
        base = next((v for t, v in zip(launched, values, strict=True) if t.user_attrs.get("phase") == "baseline"), None)
        noise = np.full(len(values), NOISE)
        if self._hints and base is not None:
            points = np.concatenate([points, [self._candidates.point(params) for params, _ in self._hints]])
            values = np.concatenate([values, [base + gain for _, gain in self._hints]])
            prior = np.concatenate([prior, [self._prior(params) for params, _ in self._hints]])
            noise = np.concatenate([noise, np.full(len(self._hints), HINT_NOISE)])
        return Surrogate(points, values, prior, ordinal=self._candidates.ordinal, noise=noise)

    def _chance(self, launched: Sequence[FrozenTrial], points: Array, priors: Array) -> Array:
        """Probability that every SLO holds, each with a process of its own."""
        from scipy.special import ndtr  # scipy.stats would cost a second to import

        chance = np.ones(len(priors))
        for name in sorted({name for t in launched for name in t.constraints} - {LAUNCH}):
            # measured / limit = 1 + violation
            logs = np.array([-np.log(max(1e-6, 1.0 + t.constraints.get(name, 1.0))) for t in launched])
            model = Surrogate(points, logs, 0 * logs, ordinal=self._candidates.ordinal, noise=3 * NOISE)
            belief = model.believe(self._candidates.points, 0 * priors)
            chance *= ndtr(belief.mean / belief.deviation)
        return chance

    def _survival(self, told: Sequence[FrozenTrial]) -> Array:
        """Probability that the engine starts: that of its knob value which failed most, so that one value is blamed."""
        died: NDArray[np.bool_] = np.array([t.constraints.get(LAUNCH, -1.0) > 0 for t in told], dtype=bool)
        if not died.any():
            return np.ones(len(self._candidates.all))
        points = np.array([self._candidates.point(t.params) for t in told])
        good, bad = FAILURE_PRIOR
        chances = []
        for column, ordinal in enumerate(self._candidates.ordinal):
            distance = np.abs(self._candidates.points[:, None, column] - points[None, :, column])
            alike = np.exp(-distance / ORDINAL_REACH) if ordinal else (distance == 0).astype(np.float64)
            ok, failed = alike[:, ~died].sum(axis=1), alike[:, died].sum(axis=1)
            chances.append((good + ok) / (good + bad + ok + failed))
        survival: Array = np.min(chances, axis=0)
        return survival


def _launched(study: optuna.Study) -> list[FrozenTrial]:
    told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [t for t in told if t.constraints.get(LAUNCH, -1.0) <= 0 and t.value is not None and t.value > 0]
