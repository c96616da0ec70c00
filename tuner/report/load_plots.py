"""Throughput and latency over the load, with the load above which speculation loses."""

from collections.abc import Callable

from tuner.explain.records import LoadCurve, LoadPoint, LoadSeries
from tuner.report.material import Material
from tuner.report.plots import Axis, Cell, Mark, Plot, Point, Section, Series
from tuner.report.quantities import number, quantity

ROLES = {"baseline": "baseline", "recommendation": "recommended", "alternative": "other"}
Getter = Callable[[LoadPoint], float | None]
SHOWN: tuple[tuple[str, Getter], ...] = (
    ("output_tok_s", lambda p: p.output_tok_s.value),
    ("ttft_p50_s", lambda p: p.ttft_s),
    ("tpot_p50_s", lambda p: p.tpot_s),
    ("e2e_p50_s", lambda p: p.e2e_s),
    ("goodput_rate", lambda p: p.goodput_rate),
)


def load_curves(material: Material) -> Section | None:
    """A plot for each profile and metric; None where each profile was measured at one load only."""
    order = [measured.split("/")[0] for measured in material.conditions]
    curves = sorted(material.explanation.load_curves, key=lambda c: order.index(c.profile) if c.profile in order else 0)
    plots = tuple(
        plot
        for place, curve in enumerate(curves)
        for metric, get in SHOWN
        if (plot := _plot(curve, place, metric, get)) is not None
    )
    reading = (
        "Load rises to the right. Whiskers: interval over the paired blocks. Baseline, recommendation, alternatives."
    )
    title = "Up to which load does speculation pay?"
    return Section(id="load", title=title, reading=reading, plots=plots) if plots else None


def _plot(curve: LoadCurve, place: int, metric: str, get: Getter) -> Plot | None:
    shown = quantity(metric)
    label = "requests per second within the SLO" if metric == "goodput_rate" else shown.label
    series = tuple(_series(one, metric, get, shown.factor) for one in curve.series)
    if not any(one.points for one in series):
        return None
    marks = [] if curve.crossover is None else [Mark(axis="x", at=curve.crossover, label="crossover")]
    of = curve.profile if curve.temperature is None else f"{curve.profile} at temperature {curve.temperature:g}"
    return Plot(
        id=f"load-{place}-{metric.replace('_', '-')}",
        name=f"{of}: {label}",
        kind="xy",
        x=Axis(label="requests in flight", scale="log"),
        y=Axis(label=label, unit=shown.unit),
        series=tuple(one for one in series if one.points),
        marks=tuple(marks),
        takeaway=_in_words(curve),
        columns=("configuration", "requests in flight", *(_head(name) for name, _ in SHOWN)),
        rows=tuple(_row(one, point) for one in curve.series for point in one.points),
    )


def _head(metric: str) -> str:
    return "requests/s within the SLO" if metric == "goodput_rate" else quantity(metric).label


def _series(one: LoadSeries, metric: str, get: Getter, factor: float) -> Series:
    points = []
    for point in one.points:
        value = get(point)
        if value is None:
            continue
        figure = point.output_tok_s
        ends = (figure.low, figure.high) if metric == "output_tok_s" else (None, None)
        points.append(Point(x=point.concurrency, y=value * factor, low=ends[0], high=ends[1], note=point.load))
    name = one.label if one.role == "alternative" else f"{one.role}: {one.label}"
    return Series.model_validate({"name": name, "role": ROLES[one.role], "style": "both", "points": points})


def _row(one: LoadSeries, point: LoadPoint) -> tuple[Cell, ...]:
    values = ((get(point), quantity(metric).factor) for metric, get in SHOWN)
    return (one.label, point.concurrency, *(None if value is None else value * factor for value, factor in values))


def _in_words(curve: LoadCurve) -> str:
    where = {
        "everywhere": "Speculation is faster at every measured load.",
        "nowhere": "Speculation is faster at none of the measured loads.",
        "below": f"Speculation is faster up to about {number(curve.crossover or 0)} requests in flight, slower above.",
        "unknown": "The measured loads do not show where speculation stops paying.",
    }[curve.speculation_wins]
    full = [s for s in curve.series if s.saturation is not None and s.role != "alternative"]
    words = ", ".join(f"the {s.role} at {number(s.saturation or 0)}" for s in full)
    return (
        f"{where} Full (throughput stops rising): {words}." if full else f"{where} Throughput rises to the last load."
    )
