"""What the search tried: trials in their order, and throughput against latency."""

from collections.abc import Sequence

from tuner.records import Measurement, TrialRecord
from tuner.report.material import Material
from tuner.report.plots import Axis, Cell, Mark, Plot, Point, Section, Series
from tuner.report.quantities import Quantity, number, quantity

PHASES = {"recipe": "vendor's recipe", "seed": "starting points", "search": "search", "confirm": "confirmation"}
# What a user waits for, against what the host delivers.
LATENCY, THROUGHPUT = "e2e_p90_s", "output_tok_s"


def trials_over_time(material: Material) -> Section | None:
    """Each condition's objective over the trials."""
    plots = tuple(
        _trials(material, condition, place)
        for place, condition in enumerate(material.conditions)
        if material.searched(condition)
    )
    reading = (
        "One point a trial, one trial an engine launch. The steps are the best so far. A cross at the foot failed."
    )
    return Section(id="trials", title="What was tried?", reading=reading, plots=plots) if plots else None


def _trials(material: Material, condition: str, place: int) -> Plot:
    shown = quantity(material.objective.metric)
    rows = [record for record in material.records if condition in record.plan.conditions]
    series = [_best_so_far(material, condition, shown), _failed(rows, condition)]
    for phase, name in {"baseline": "baseline", **PHASES}.items():
        own = [r for r in rows if r.plan.phase == phase and _value(r, condition, material) is not None]
        points = tuple(_trial_point(r, condition, material, shown) for r in own)
        series.append(Series(name=name, role="baseline" if phase == "baseline" else "other", points=points))
    return Plot(
        id=f"trials-{place}",
        name=condition,
        kind="xy",
        x=Axis(label="trial", zero=False),
        y=Axis(label=shown.label, unit=shown.unit),
        series=tuple(one for one in series if one.points),
        takeaway=_search_in_words(material, condition, shown),
        columns=("trial", "phase", "configuration", shown.label, "status"),
        rows=tuple(_trial_row(r, condition, material, shown) for r in rows),
    )


def _value(record: TrialRecord, condition: str, material: Material) -> float | None:
    measurement = record.measurements.get(condition)
    return measurement.metrics.get(material.objective.metric) if measurement and measurement.valid else None


def _trial_point(record: TrialRecord, condition: str, material: Material, shown: Quantity) -> Point:
    value = _value(record, condition, material)
    label = record.plan.serve_config.label()
    return Point(x=record.plan.number, y=None if value is None else value * shown.factor, note=label)


def _best_so_far(material: Material, condition: str, shown: Quantity) -> Series:
    points: list[Point] = []
    best: float | None = None
    for record, measurement in material.searched(condition):
        value = measurement.metrics[material.objective.metric]
        if best is None or material.objective.better(value, best):
            best = value
        points.append(Point(x=record.plan.number, y=best * shown.factor, note="best so far"))
    return Series(name="best so far", role="recommended", style="steps", points=tuple(points))


def _failed(rows: Sequence[TrialRecord], condition: str) -> Series:
    points = tuple(
        Point(x=r.plan.number, y=None, note=f"{r.plan.serve_config.label()}: {_status(r, condition)}")
        for r in rows
        if _status(r, condition) != "measured"
    )
    return Series(name="not measured", points=points)


def _status(record: TrialRecord, condition: str) -> str:
    measurement = record.measurements.get(condition)
    if measurement is not None and measurement.valid:
        return "measured"
    if measurement is not None:
        return f"invalid: {measurement.problems[0]}"
    return f"{record.status}: {record.failure.kind}" if record.failure else record.status


def _trial_row(record: TrialRecord, condition: str, material: Material, shown: Quantity) -> tuple[Cell, ...]:
    value = _value(record, condition, material)
    scaled = None if value is None else value * shown.factor
    label = record.plan.serve_config.label()
    return (record.plan.number, record.plan.phase, label, scaled, _status(record, condition))


def _search_in_words(material: Material, condition: str, shown: Quantity) -> str:
    rows = material.searched(condition)
    sign = 1 if material.objective.direction == "maximize" else -1
    record, best = max(rows, key=lambda row: sign * row[1].metrics[material.objective.metric])
    first = rows[0][1].metrics[material.objective.metric]
    return (
        f"Best of {len(rows)} measured configurations in the search: {record.plan.serve_config.label()} "
        f"(trial {record.plan.number}) with {shown.text(best.metrics[material.objective.metric])}; the baseline had "
        f"{shown.text(first)}. The confirmation replays other requests, so its values are not comparable with these."
    )


def pareto(material: Material) -> Section | None:
    """Throughput against latency of every configuration of the search."""
    plots = tuple(
        plot
        for place, condition in enumerate(material.conditions)
        if (plot := _pareto(material, condition, place)) is not None
    )
    reading = "Up is more throughput, left is less waiting. On the line, nothing is better in both."
    return Section(id="pareto", title="Does throughput cost latency?", reading=reading, plots=plots) if plots else None


def _pareto(material: Material, condition: str, place: int) -> Plot | None:
    rows = [(r, m) for r, m in material.searched(condition) if LATENCY in m.metrics and THROUGHPUT in m.metrics]
    if len(rows) < 3:
        return None
    x, y = quantity(LATENCY), quantity(THROUGHPUT)
    front, answer = pareto_front(rows), material.answer(condition)
    chosen = answer.serve_config.id if answer and answer.verdict == "change" else None
    base = rows[0][0].plan.serve_config.id
    kinds: dict[str, list[Point]] = {"other configurations": [], "baseline": [], "recommended": []}
    for record, m in rows:
        key = record.plan.serve_config.id
        kind = "recommended" if key == chosen else "baseline" if key == base else "other configurations"
        kinds[kind].append(_pair(record, m, x, y))
    roles = {"other configurations": "other", "baseline": "baseline", "recommended": "recommended"}
    points = tuple(_pair(r, m, x, y) for r, m in front)
    groups = [Series.model_validate({"name": n, "role": roles[n], "points": p}) for n, p in kinds.items() if p]
    line = Series(name="not beaten in both", role="other", style="line", points=points)
    limits = [slo for slo in material.slos if slo.metric == LATENCY]
    labels = ", ".join(dict.fromkeys(r.plan.serve_config.label() for r, _ in front))
    return Plot(
        id=f"pareto-{place}",
        name=condition,
        kind="xy",
        x=Axis(label=x.label, unit=x.unit, zero=False),
        y=Axis(label=y.label, unit=y.unit, zero=False),
        series=tuple(one for one in (line, *groups) if len(one.points) > (one is line)),
        marks=tuple(Mark(axis="x", at=slo.limit_s * x.factor, label="SLO") for slo in limits),
        takeaway=f"Not beaten in both: {labels}."
        if len(front) > 1
        else f"One configuration is best in both: {labels}.",
        columns=("trial", "configuration", y.label, x.label, "not beaten"),
        rows=tuple(_pareto_row(r, m, on_front=(r, m) in front) for r, m in rows),
    )


def _pareto_row(record: TrialRecord, measurement: Measurement, *, on_front: bool) -> tuple[Cell, ...]:
    values = (measurement.metrics[name] * quantity(name).factor for name in (THROUGHPUT, LATENCY))
    return (record.plan.number, record.plan.serve_config.label(), *values, "yes" if on_front else "")


def pareto_front(rows: Sequence[tuple[TrialRecord, Measurement]]) -> list[tuple[TrialRecord, Measurement]]:
    """Those with more throughput than every row with less or the same latency, by latency."""
    front: list[tuple[TrialRecord, Measurement]] = []
    for row in sorted(rows, key=lambda row: (row[1].metrics[LATENCY], -row[1].metrics[THROUGHPUT])):
        if not front or row[1].metrics[THROUGHPUT] > front[-1][1].metrics[THROUGHPUT]:
            front.append(row)
    return front


def _pair(record: TrialRecord, measurement: Measurement, x: Quantity, y: Quantity) -> Point:
    hits = measurement.metrics.get("prefix_hit_rate")
    note = f"trial {record.plan.number}: {record.plan.serve_config.label()}"
    return Point(
        x=measurement.metrics[LATENCY] * x.factor,
        y=measurement.metrics[THROUGHPUT] * y.factor,
        note=note if hits is None else f"{note}; {number(hits * 100)}% of the prompt tokens from the cache",
    )
