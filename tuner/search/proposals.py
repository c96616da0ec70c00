"""What to launch next, and whether another launch still pays.

Every condition has its own Optuna study, and every launch is told to all of them. The condition that expects most of
its best candidate asks; when none expects more than the noise could hide, the search is over.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import optuna

from search_spaces import ResolvedSpace, Scalar
from tuner.objective import Objective, Slo
from tuner.predict import K_KNOB, Predictor, length_of, recipe_method
from tuner.records import TrialRecord
from tuner.search.candidates import Candidates
from tuner.search.observations import Observations, distributions_of
from tuner.search.sampler import SurrogateSampler
from tuner.search.warm_start import Hint, inside

MIN_GAIN = 0.004
"""Expected gain in log units below which a launch no longer pays."""
WIDE_GAP = 0.27
"""Distance between neighbouring draft lengths, as square roots of their share of the longest, that is bisected."""
MIN_OBSERVATIONS = 8
"""Measured launches before an expectation is trusted to end the search."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One configuration to launch."""

    values: dict[str, Scalar]
    """Knob values, and `temperature` when it is searched."""
    asked_by: str
    """The condition whose study proposed it."""
    expected_gain: float
    """Expected improvement over the best so far, in log units."""


class Search:
    """Proposes knob values for one study of the tuner."""

    def __init__(
        self,
        space: ResolvedSpace,
        *,
        objective: Objective,
        slos: tuple[Slo, ...],
        temperature_range: tuple[float, float] | None,
        seed: int,
        hints: Sequence[Hint] = (),
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._objective = objective
        self._seed = seed
        self._hints = tuple(hints)
        self.distributions = distributions_of(space, temperature_range)
        self._studies: dict[str, tuple[optuna.Study, frozenset[int]]] = {}
        self._shared_predictor: Predictor | None = None
        self._predicted_from: tuple[int, ...] = ()
        self._observations = Observations(space, self.distributions, objective, slos)

    @cached_property
    def candidates(self) -> Candidates:
        """Everything that can be proposed."""
        return Candidates(self._space, self.distributions, seed=self._seed)

    @property
    def method(self) -> str | None:
        """The speculative method whose draft length is predicted."""
        return recipe_method(self._space)

    def next(self, conditions: Sequence[str], records: Sequence[TrialRecord]) -> Proposal | None:
        """The proposal of the condition that expects most; None when everything has been tried."""
        proposals = [p for condition in conditions if (p := self._propose(condition, records)) is not None]
        return max(proposals, key=lambda p: p.expected_gain, default=None)

    def propose(self, condition: str, records: Sequence[TrialRecord]) -> dict[str, Scalar] | None:
        """Values that no finished trial has tried, proposed by one condition's study; None when none is left."""
        proposal = self._propose(condition, records)
        return None if proposal is None else proposal.values

    def pays(self, proposal: Proposal, records: Sequence[TrialRecord]) -> bool:
        """Whether the launch is expected to gain more than noise hides."""
        measured = sum(r.status == "measured" and r.plan.phase != "confirm" for r in records)
        return measured < MIN_OBSERVATIONS or proposal.expected_gain >= MIN_GAIN

    def believed(self, condition: str, records: Sequence[TrialRecord]) -> dict[int, float]:
        """Trial number -> log value, better upwards, as its neighbours make it believable; only what was measured."""
        sampler = self._sampler(condition, records)
        return sampler.believed(self._study(condition, records))

    def predicted(self, condition: str, records: Sequence[TrialRecord]) -> dict[str, Scalar] | None:
        """The recipe with the draft length that the prediction likes best; None without a prediction.

        Only a seed: it is launched and measured like any other.
        """
        recipe, method = self._space.recipe(), self.method
        if recipe is None or method is None:
            return None
        best = Predictor(records, method=method).best(condition, self._lengths(), self._objective.metric)
        if not best:
            return None
        return self._with_length(recipe, best)

    def unexplored(self, records: Sequence[TrialRecord]) -> dict[str, Scalar] | None:
        """The recipe with a draft length in the middle of the widest gap between measured ones; None when none is wide.

        Prediction and surrogate both draw a smooth line through a gap, and step time has stairs and cliffs.
        """
        recipe, method = self._space.recipe(), self.method
        lengths = self._lengths()
        if recipe is None or method is None or not lengths:
            return None
        measured = {length_of(r.effective(), method) for r in records if r.status == "measured"}
        places = sorted(math.sqrt(k / lengths[-1]) for k in measured if k is not None)
        width, middle = max(((b - a, (a + b) / 2) for a, b in pairwise(places)), default=(0.0, 0.0))
        k = min(lengths, key=lambda length: abs(math.sqrt(length / lengths[-1]) - middle))
        if width < WIDE_GAP or k in measured:
            return None
        return self._with_length(recipe, k)

    def export_studies(self, path: Path, conditions: Iterable[str], records: Sequence[TrialRecord]) -> None:
        """Writes one Optuna study per condition to an SQLite file; trials already there are left alone."""
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        try:
            for condition in conditions:
                study = self._new_study(condition, storage)
                told = {trial.user_attrs["trial"] for trial in study.trials if "trial" in trial.user_attrs}
                self._tell(study, condition, records, told)
        finally:
            storage.engine.dispose()

    def _propose(self, condition: str, records: Sequence[TrialRecord]) -> Proposal | None:
        sampler, study = self._sampler(condition, records), self._study(condition, records)
        best = sampler.best(study)
        return None if best is None else Proposal(dict(best[0].params), condition, best[1])

    def _sampler(self, condition: str, records: Sequence[TrialRecord]) -> SurrogateSampler:
        return SurrogateSampler(
            self.candidates,
            tried={(r.plan.serve_config.id, r.plan.temperature) for r in records},
            prior=_Prior(self._space, self._predictor(records), condition, self.method, self._objective.metric),
            seed=_derived_seed(self._seed, condition, len(records)),
            hints=self._hinted(condition),
        )

    def _predictor(self, records: Sequence[TrialRecord]) -> Predictor | None:
        """Made once for all conditions."""
        numbers = tuple(record.plan.number for record in records)
        if self.method is not None and self._predicted_from != numbers:
            self._shared_predictor, self._predicted_from = Predictor(records, method=self.method), numbers
        return self._shared_predictor

    def _study(self, condition: str, records: Sequence[TrialRecord]) -> optuna.Study:
        """The condition's study in memory; only what is new is told, because the same records make the same study."""
        study, told = self._studies.get(condition, (None, frozenset()))
        numbers = frozenset(record.plan.number for record in records)
        if study is None or not told <= numbers:
            study, told = self._new_study(condition, None), frozenset()
        self._tell(study, condition, records, told)
        self._studies[condition] = study, numbers
        return study

    def _new_study(self, condition: str, storage: optuna.storages.RDBStorage | None) -> optuna.Study:
        return optuna.create_study(
            study_name=condition,
            storage=storage,
            sampler=optuna.samplers.RandomSampler(seed=self._seed),
            direction=self._objective.direction,
            load_if_exists=True,
        )

    def _tell(
        self, study: optuna.Study, condition: str, records: Sequence[TrialRecord], told: AbstractSet[int]
    ) -> None:
        for record in records:
            frozen = None if record.plan.number in told else self._observations.trial(condition, record, records)
            if frozen is not None:
                study.add_trial(frozen)

    def _hinted(self, condition: str) -> list[tuple[dict[str, Scalar], float]]:
        """Parameters of an earlier study's configurations with their log gains."""
        hinted = []
        for hint in self._hints:
            values = inside(hint.values, self._space)
            params = self._observations.params(values, hint.temperature) if values is not None else None
            if params is not None:
                hinted.append((params, hint.log_gain(condition)))
        return hinted

    def _with_length(self, recipe: Mapping[str, Scalar], k: int) -> dict[str, Scalar]:
        """The recipe at another length, otherwise as the space's first seed that speculates with caching has it.

        So a launch for K also says what the seed's other knobs do.
        """
        seeds = (seed for seed in self._space.seeds if seed.get("method") == self.method)
        other = next((seed for seed in seeds if seed.get("prefix_caching") is not False), {})
        values = {**{name: value for name, value in recipe.items() if name in self._space.knobs}, **other, K_KNOB: k}
        return self._space.starting_point({n: v for n, v in values.items() if n != "max_num_batched_tokens"})

    def _lengths(self) -> list[int]:
        knob = self._space.knobs.get(K_KNOB)
        return [k for k in knob.values() if isinstance(k, int) and k > 0] if knob else []


class _Prior:
    """The predicted log gain of parameters; depends on the draft length alone."""

    def __init__(
        self, space: ResolvedSpace, predictor: Predictor | None, condition: str, method: str | None, metric: str
    ) -> None:
        self._space, self._predictor = space, predictor
        self._condition, self._method, self._metric = condition, method, metric
        self._known: dict[int, float] = {}

    def __call__(self, params: Mapping[str, Scalar]) -> float:
        if self._predictor is None or self._method is None:
            return 0.0
        k = length_of({**self._space.fixed, **params}, self._method)
        if not k:
            return 0.0
        if k not in self._known:
            self._known[k] = self._predictor.log_gain(self._condition, k, self._metric)
        return self._known[k]


def _derived_seed(seed: int, condition: str, count: int) -> int:
    digest = hashlib.sha256(f"{seed}/{condition}/{count}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
