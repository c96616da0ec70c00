"""A plot as a PNG, for MLflow and documents: the same `Plot` that the page draws, without its interaction."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.report.plots import Plot, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES, DPI = (8.0, 4.6), 110
# The page's colours on white.
COLOURS = {"baseline": "#6b7280", "recommended": "#0a58ca"}
OTHERS = ("#b45309", "#7c3aed", "#0f766e", "#be185d", "#4d7c0f", "#475569")
MARKERS = ("o", "s", "^", "D")
LANE_HEIGHT = 0.8


def draw(plot: Plot, directory: Path) -> Path:
    """Writes `<id>.png`.

    Raises:
        OSError: it cannot be written.
    """
    # Not pyplot: it keeps state of the process, and this runs beside a study's threads.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    path = directory / f"{plot.id}.png"
    # A dollar sign in a name of the user's is no formula.
    with rc_context({"text.parse_math": False, "font.size": 9}):
        figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
        axes = figure.subplots()
        axes.set_title(textwrap.shorten(plot.name, 110, placeholder="..."), loc="left", fontsize=10)
        _DRAW[plot.kind](axes, plot)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Software": "dflash-tuner"})
    return path


def _xy(axes: "Axes", plot: Plot) -> None:
    for series, colour in zip(plot.series, _colours(plot), strict=True):
        points = [p for p in series.points if p.y is not None]
        xs, ys = [p.x for p in points], [p.y or 0.0 for p in points]
        line = "-" if series.style != "points" else ""
        marker = MARKERS[plot.series.index(series) % len(MARKERS)] if series.style in {"points", "both"} else ""
        axes.plot(
            xs,
            ys,
            linestyle=line,
            marker=marker,
            color=colour,
            label=_short(series.name),
            markersize=5,
            drawstyle="steps-post" if series.style == "steps" else "default",
        )
        for p in points:
            if p.low is not None and p.high is not None:
                axes.plot([p.x, p.x], [p.low, p.high], color=colour, linewidth=1)
    if plot.x.scale == "log":
        axes.set_xscale("log", base=2)
        ticks = sorted({p.x for s in plot.series for p in s.points})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    if plot.x.categories:
        axes.set_xticks(range(len(plot.x.categories)), [_short(name, 16) for name in plot.x.categories])
    if plot.y.zero:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(plot.x.label)
    axes.set_ylabel(plot.y.label)
    for mark in plot.marks:
        (axes.axvline if mark.axis == "x" else axes.axhline)(mark.at, color="#9a3b00", linestyle="--", linewidth=1)
    axes.grid(color="#e6eaef")
    if len(plot.series) > 1:
        axes.legend(fontsize=8)


def _bars(axes: "Axes", plot: Plot) -> None:
    for p in plot.series[0].points:
        value = p.y or 0.0
        axes.barh(p.x, value, color=COLOURS["recommended"], alpha=0.45)
        if p.low is not None and p.high is not None:
            axes.plot([p.low, p.high], [p.x, p.x], color=COLOURS["recommended"], marker="|")
    axes.set_yticks(range(len(plot.y.categories)), [_short(name, 40) for name in plot.y.categories])
    axes.invert_yaxis()
    axes.set_xlabel(plot.x.label)
    for mark in plot.marks:
        axes.axvline(mark.at, color="#9a3b00", linestyle="--", linewidth=1)


def _heat(axes: "Axes", plot: Plot) -> None:
    from matplotlib.patches import Rectangle

    for p in plot.series[0].points:
        value, row = p.value or 0.0, p.y or 0.0
        colour = COLOURS["recommended"] if value >= 1 else "#9a3b00"
        tint = min(0.5, abs(value - 1) / 2)
        axes.add_patch(Rectangle((p.x - 0.48, row - 0.48), 0.96, 0.96, color=colour, alpha=tint))
        ends = "" if p.low is None or p.high is None else f"\n{p.low:.2f} to {p.high:.2f}"
        axes.text(p.x, row, f"{value:.2f}x{ends}", ha="center", va="center")
    axes.set_xticks(range(len(plot.x.categories)), [_short(name) for name in plot.x.categories])
    axes.set_yticks(range(len(plot.y.categories)), [_short(name) for name in plot.y.categories])
    axes.set_xlim(-0.5, len(plot.x.categories) - 0.5)
    axes.set_ylim(len(plot.y.categories) - 0.5, -0.5)


def _timeline(axes: "Axes", plot: Plot) -> None:
    for series, colour in zip(plot.series, _colours(plot), strict=True):
        waits = [(p.low or 0.0, (p.high if p.high is not None else p.y or 0.0) - (p.low or 0.0)) for p in series.points]
        works = [(p.high, (p.y or 0.0) - p.high) if p.high is not None else (p.y or 0.0, 0.0) for p in series.points]
        lanes = [p.x for p in series.points]
        for spans, alpha in ((waits, 0.35), (works, 1.0)):
            starts, lengths = [s for s, _ in spans], [n for _, n in spans]
            axes.barh(lanes, lengths, left=starts, height=LANE_HEIGHT, color=colour, alpha=alpha)
        axes.plot([], [], color=colour, linewidth=6, label=_short(series.name))
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlabel(plot.x.label)
    axes.legend(fontsize=8)


_DRAW = {"xy": _xy, "bars": _bars, "heat": _heat, "timeline": _timeline}


def _colours(plot: Plot) -> list[str]:
    others = iter(OTHERS * (len(plot.series) // len(OTHERS) + 1))
    return [_colour(series) or next(others) for series in plot.series]


def _colour(series: Series) -> str | None:
    return COLOURS.get(series.role)


def _short(text: str, width: int = 60) -> str:
    return textwrap.shorten(text, width, placeholder="...") or text[:width]
