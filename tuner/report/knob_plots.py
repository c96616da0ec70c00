"""What each knob did: how much it decided, and the gain at each of its values."""

import math
import statistics
from collections.abc import Mapping, Sequence

from search_spaces import Scalar
from tuner.explain.records import Importance
from tuner.records import TrialRecord
from tuner.report.material import Material
from tuner.report.plots import Axis, Mark, Plot, Point, Section, Series
from tuner.report.quantities import gain, percent

DEFAULT = "not set"
# Knobs of a condition whose values are drawn, the most important ones.
MOST_KNOBS = 6


def importance(material: Material) -> Section | None:
    """How much each knob decided, one plot for each condition."""
    rows = material.explanation.importances
    keys = [key for key in material.conditions if any(row.condition == key for row in rows)]
    plots = tuple(
        _importance(key, place, [row for row in rows if row.condition == key]) for place, key in enumerate(keys)
    )
    reading = "PED-ANOVA: how differently a knob is set in the better quarter of the trials. Line: bootstrap interval."
    title = "Which knobs decided?"
    return Section(id="importance", title=title, reading=reading, plots=plots) if plots else None


def _importance(condition: str, place: int, rows: Sequence[Importance]) -> Plot:
    matter = ", ".join(row.knob for row in rows if row.matters) or "none reliably"
    idle = ", ".join(row.knob for row in rows if not row.matters) or "none"
    ends = [tuple(None if end is None else end * 100 for end in (row.share.low, row.share.high)) for row in rows]
    points = tuple(
        Point(x=n, y=row.share.value * 100, low=low, high=high, note=f"best with {row.best_value}")
        for n, (row, (low, high)) in enumerate(zip(rows, ends, strict=True))
    )
    return Plot(
        id=f"importance-{place}",
        name=condition,
        kind="bars",
        x=Axis(label="share of the importance (%)", unit="%"),
        y=Axis(label="knob", categories=tuple(row.knob for row in rows)),
        series=(Series(name="importance with its interval", role="recommended", points=points),),
        takeaway=f"Decided: {matter}. No more than chance: {idle}.",
        columns=("knob", "share (%)", "interval (%)", "more than chance", "value in the best configuration"),
        rows=tuple(
            (row.knob, row.share.value * 100, percent(*end), "yes" if row.matters else "no", row.best_value)
            for row, end in zip(rows, ends, strict=True)
        ),
    )


def effects(material: Material) -> Section | None:
    """Gain over the baseline at each value of a knob, one plot for each condition and knob."""
    plots = tuple(
        _effect(material, condition, knob, f"effect-{place}-{number}")
        for place, condition in enumerate(material.conditions)
        for number, knob in enumerate(_knobs(material, condition)[:MOST_KNOBS])
    )
    reading = (
        "One point a configuration of the search. Other knobs differ too, so compare the whole column, not one point."
    )
    title = "What did each value of a knob do?"
    return Section(id="effects", title=title, reading=reading, plots=plots) if plots else None


def _knobs(material: Material, condition: str) -> list[str]:
    """Knobs that took two values or more, in order of importance."""
    settings = [_settings(record) for record, _ in material.searched(condition)]
    names = dict.fromkeys(name for one in settings for name in one)
    varied = [name for name in names if len({one.get(name) for one in settings}) > 1]
    known = [row.knob for row in material.explanation.importances if row.condition == condition]
    return sorted(varied, key=lambda name: known.index(name) if name in known else len(known))


def _settings(record: TrialRecord) -> Mapping[str, Scalar]:
    """What distinguishes a configuration, with what the engine used instead.

    Without speculation K is 0, as in MLflow, so that its effect can be read along one axis.
    """
    identity = record.plan.serve_config.identity
    plain: dict[str, Scalar] = {} if "method" in identity else {"method": "none", "num_speculative_tokens": 0}
    return {**plain, **identity, **{n: v for n, v in record.applied.items() if n in identity}}


def _effect(material: Material, condition: str, knob: str, name: str) -> Plot:
    rows = material.searched(condition)
    base = rows[0][1].metrics[material.objective.metric]
    found: dict[str, list[tuple[float, str]]] = {}
    order: dict[str, tuple[int, float, str]] = {}
    for record, m in rows:
        value = _settings(record).get(knob)
        text = _text(value)
        order[text] = _order(value)
        change = material.objective.gain(m.metrics[material.objective.metric], base)
        found.setdefault(text, []).append((change, f"trial {record.plan.number}: {record.plan.serve_config.label()}"))
    names = sorted(found, key=lambda text: order[text])
    points = tuple(Point(x=n, y=y, note=note) for n, text in enumerate(names) for y, note in found[text])
    medians = [statistics.median(y for y, _ in found[text]) for text in names]
    best = names[max(range(len(names)), key=lambda n: medians[n])]
    return Plot(
        id=name,
        name=f"{condition}: {knob}",
        kind="xy",
        x=Axis(label=knob, categories=tuple(names)),
        y=Axis(label="times better than the baseline", unit="x"),
        series=(
            Series(name="configurations", role="other", points=points),
            Series(
                name="median",
                role="recommended",
                style="both",
                points=tuple(Point(x=n, y=y, note="median") for n, y in enumerate(medians)),
            ),
        ),
        marks=(Mark(axis="y", at=1.0, label="baseline"),),
        takeaway=f"Best in the middle: {knob} = {best}, {gain(max(medians))} the baseline "
        f"(median of {len(found[best])}).",
        columns=(knob, "configurations", "median gain", "best gain", "worst gain"),
        rows=tuple(
            (text, len(found[text]), gain(m), gain(max(found[text])[0]), gain(min(found[text])[0]))
            for text, m in zip(names, medians, strict=True)
        ),
    )


def _text(value: Scalar) -> str:
    if value is None:
        return DEFAULT
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _order(value: Scalar) -> tuple[int, float, str]:
    """What is not set first, then numbers by size, then words."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, math.inf, str(value))
