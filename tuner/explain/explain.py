"""From a study's files to its `Explanation`: asks each question's module and sums the answers up."""

from collections.abc import Mapping, Sequence

from tuner.explain.acceptance import acceptances
from tuner.explain.cache_use import cache_use
from tuner.explain.case import Case
from tuner.explain.importance import MIN_TRIALS, importances
from tuner.explain.interaction import interactions
from tuner.explain.load_curve import load_curves
from tuner.explain.observed import Arm, arms_of
from tuner.explain.records import Explanation, Finding, Interaction
from tuner.explain.rules import findings
from tuner.explain.speed import speed_models
from tuner.objective import Objective, parse_objective
from tuner.records import Recommendation, TrialRecord
from tuner.store import Store

# Which rules explain an interaction of speculation with prefix caching.
_CACHE_RULES = (
    "last block dropped",
    "last block dropped, no flag",
    "hits lost",
    "acceptance collapses with cache",
)


def explain_study(store: Store) -> Explanation:
    """Explains a study from its directory.

    Raises:
        StudyError: its files cannot be read.
    """
    config, records = store.config(), store.records()
    return explain(
        records,
        store.recommendations(),
        study=config.study,
        objective=parse_objective(config.objective),
        confidence=config.confidence,
    )


def explain(
    records: Sequence[TrialRecord],
    answers: Sequence[Recommendation],
    *,
    study: str,
    objective: Objective,
    confidence: float,
) -> Explanation:
    """Explains finished trials.

    Args:
        records: all finished trials.
        answers: recommendations; empty while the study runs.
        study: its name.
        objective: what it optimised.
        confidence: level of the intervals.
    """
    by_condition = arms_of(records, profiles_of(records, answers))
    arms = [arm for own in by_condition.values() for arm in own]
    baseline = next((r.plan.serve_config.id for r in records if r.plan.phase == "baseline"), None)
    recommended: dict[str, set[str]] = {}
    for answer in answers:
        recommended.setdefault(answer.profile, set()).add(answer.serve_config.id)
    speed, lengths = speed_models(arms, confidence)
    curves = load_curves(arms, baseline=baseline, recommended=recommended, confidence=confidence)
    crossed, used, found, knobs = [], [], [], []
    for own in by_condition.values():
        cache = cache_use(own)
        case = Case(
            arms=own,
            profile_arms=[arm for arm in arms if arm.profile == own[0].profile],
            cache=cache,
            speed=[p for model in speed for p in model.points if p.condition == own[0].condition],
            curve=next(
                (c for c in curves if c.profile == own[0].profile and c.temperature == own[0].temperature), None
            ),
            confidence=confidence,
        )
        fired = findings(case)
        reference = next((arm for arm in own if arm.config.id == baseline), None)
        crossed += [_with_causes(row, fired) for row in interactions(own, reference, objective, confidence)]
        used += cache
        found += fired
        knobs += importances(own, objective, confidence)
    return Explanation(
        study=study,
        engine_version=next((r.engine_version for r in records if r.engine_version), "unknown"),
        simulated=any(record.simulated for record in records),
        objective=objective.metric,
        objective_unit=objective.unit,
        confidence=confidence,
        summary=tuple(_summary(answers, found, crossed)),
        findings=tuple(found),
        interactions=tuple(crossed),
        cache_use=tuple(used),
        acceptance=tuple(row for own in by_condition.values() for row in acceptances(own, confidence)),
        best_lengths=tuple(lengths),
        speed=tuple(speed),
        load_curves=tuple(curves),
        importances=tuple(knobs),
        missing=tuple(_missing(by_condition, crossed, curves)),
    )


def profiles_of(records: Sequence[TrialRecord], answers: Sequence[Recommendation]) -> dict[str, str]:
    """Profile of each condition: as the answers say, else the key up to the temperature or load that it ends with."""
    named = {answer.condition: answer.profile for answer in answers}
    keys = {key for record in records for key in record.measurements}
    loads = {m.load for r in records for m in r.measurements.values()}
    temperatures = {m.temperature for r in records for m in r.measurements.values()}
    parts = (len(loads) > 1) + (len(temperatures) > 1)
    return {key: named.get(key) or "/".join(key.split("/")[: -parts or None]) for key in keys}


def _with_causes(row: Interaction, fired: Sequence[Finding]) -> Interaction:
    """Names the findings that explain what speculation and cache do to each other in this row."""
    cached = row.first.startswith("speculation") and row.second == "prefix caching"
    if not cached:
        return row
    trials = set(row.both.trials)
    causes = [f.rule for f in fired if f.rule in _CACHE_RULES and (trials & set(f.trials) or _drops(row, f))]
    return row.model_copy(update={"causes": tuple(causes)})


def _drops(row: Interaction, finding: Finding) -> bool:
    """One finding names the worst configuration; the others with the drop on have the same cause."""
    return finding.rule.startswith("last block") and "disable_eagle_block_drop=on" not in row.both.label


def _summary(answers: Sequence[Recommendation], found: Sequence[Finding], crossed: Sequence[Interaction]) -> list[str]:
    lines = []
    for answer in answers:
        gain = (
            f" ({answer.effect.gain:.2f}x, {answer.effect.low:.2f} to {answer.effect.high:.2f})"
            if answer.effect
            else ""
        )
        lines.append(f"{answer.condition}: {answer.verdict}: {answer.serve_config.label()}{gain}")
    lines += [
        f"{row.condition}: {row.first} with {row.second} gains {row.both.gain.value:.2f}x; alone they gain "
        f"{row.first_only.gain.value:.2f}x and {row.second_only.gain.value:.2f}x, so {row.expected_gain:.2f}x or more "
        f"was to be expected: {', '.join(row.causes)}"
        for row in crossed
        if row.causes
    ]
    for rule in dict.fromkeys(finding.rule for finding in found):
        same = [finding for finding in found if finding.rule == rule]
        lines.append(f"{', '.join(f.condition for f in same)}: {same[0].title}; {same[0].remedy}")
    if answers and not found:
        lines.append("nothing is wrong: no rule found a fault in what was measured")
    return list(dict.fromkeys(lines))


def _missing(
    by_condition: Mapping[str, Sequence[Arm]], crossed: Sequence[Interaction], curves: Sequence[object]
) -> list[str]:
    """What could not be answered, and what to run for it."""
    arms = [arm for own in by_condition.values() for arm in own]
    lines = []
    if not any(row.second == "prefix caching" for row in crossed):
        lines.append(
            "no interaction of speculation and prefix caching: its four corners were not all measured "
            "(--space quick has them as seeds)"
        )
    if not curves:
        lines.append("no load curve: the study has one load (--load concurrency=1,2,4,8,16)")
    if len({arm.temperature for arm in arms}) < 2:
        lines.append("no curve of acceptance over temperature: one temperature was sent (--temperature 0,0.6,1.0)")
    if max((len(own) for own in by_condition.values()), default=0) < MIN_TRIALS:
        lines.append(f"no importance of knobs: it needs {MIN_TRIALS} configurations (--trials {MIN_TRIALS})")
    lines.append(
        "acceptance by context length, by position in the answer and by kind of content is not told apart: the engine "
        "counts per measurement; profiles (--profile-by) are the way to compare kinds"
    )
    return lines
