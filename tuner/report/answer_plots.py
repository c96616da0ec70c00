"""The answer as a plot: what each condition gains, and how sure that is."""

from tuner.report.material import Material
from tuner.report.plots import Axis, Mark, Plot, Point, Section, Series
from tuner.report.quantities import gain, interval, quantity


def gains(material: Material) -> Section | None:
    """The gain over the baseline by condition; None where no candidate was confirmed."""
    rows = [answer for answer in material.answers if answer.effect is not None]
    if not rows:
        return None
    shown = quantity(material.objective.metric)
    points = tuple(
        Point(x=number, y=a.effect.gain, low=a.effect.low, high=a.effect.high, note=a.serve_config.label())
        for number, a in enumerate(rows)
        if a.effect
    )
    best = max(rows, key=lambda a: a.effect.gain if a.effect else 0)
    plot = Plot(
        id="gain",
        name="gain over the baseline",
        kind="bars",
        x=Axis(label="times better than the baseline", unit="x"),
        y=Axis(label="condition", categories=tuple(a.condition for a in rows)),
        series=(Series(name="gain with its interval", role="recommended", points=points),),
        marks=(Mark(axis="x", at=1.0, label="no change"),),
        takeaway=f"Largest gain: {best.condition}, {gain(best.effect.gain if best.effect else 1)}. An interval that "
        "touches 1 is no reliable gain.",
        columns=("condition", "configuration", f"baseline ({shown.unit})", f"value ({shown.unit})", "gain", "interval"),
        rows=tuple(
            (
                a.condition,
                a.serve_config.label(),
                a.baseline_value * shown.factor,
                a.value * shown.factor,
                gain(a.effect.gain),
                interval(a.effect.low, a.effect.high),
            )
            for a in rows
            if a.effect
        ),
    )
    reading = (
        "Bar: mean gain over paired blocks of held-out requests. Line: interval after correction for all finalists."
    )
    return Section(id="gain", title="How much is gained, and how sure is it?", reading=reading, plots=(plot,))
