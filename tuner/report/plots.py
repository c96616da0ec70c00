"""What a plot shows, as data: the page's script and the images for MLflow draw the same `Plot`.

Says nothing about colours, sizes or where the figures come from. Texts are plain; whoever draws them escapes them.
"""

from typing import Literal

from pydantic import Field

from tuner.records import Strict

Cell = str | float | int | None
Role = Literal["baseline", "recommended", "other"]


class Axis(Strict):
    """One axis. A category axis numbers its categories from 0."""

    label: str = Field(description="what it shows, with the unit")
    scale: Literal["linear", "log"] = Field(default="linear", description="how values become positions")
    categories: tuple[str, ...] = Field(default=(), description="names of the positions; empty for numbers")
    unit: str = Field(default="", description="unit, for a single value")
    zero: bool = Field(default=True, description="whether a linear axis begins at 0 where all values are above it")


class Point(Strict):
    """One mark. `y` of None is a trial that was not measured: it is drawn at the foot of the plot."""

    x: float = Field(description="position along the first axis")
    y: float | None = Field(description="position along the second axis; of a cell, its row; of a request, its end")
    low: float | None = Field(default=None, description="lower end of the interval; of a request, its sending")
    high: float | None = Field(default=None, description="upper end of the interval; of a request, its first token")
    note: str = Field(default="", description="what is said of it beside its numbers")
    value: float | None = Field(default=None, description="of a cell of a heat map, its figure")


class Series(Strict):
    """Marks that are toggled together."""

    name: str = Field(description="name in the legend")
    role: Role = Field(default="other", description="what it is in the study; decides colour and weight")
    style: Literal["line", "points", "steps", "both"] = Field(default="points", description="how points are joined")
    points: tuple[Point, ...] = Field(description="in the order in which they are joined")


class Mark(Strict):
    """A line across the plot."""

    axis: Literal["x", "y"] = Field(description="axis on which it has its position")
    at: float = Field(description="position")
    label: str = Field(description="what is there")


class Plot(Strict):
    """One plot with its table."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="unique name; also the name of its image")
    name: str = Field(description="which of a section's plots it is")
    kind: Literal["xy", "bars", "heat", "timeline"] = Field(description="how it is drawn")
    x: Axis = Field(description="horizontal axis; of bars, that of the values")
    y: Axis = Field(description="vertical axis; of bars, that of the categories")
    series: tuple[Series, ...] = Field(description="what is drawn, first below")
    marks: tuple[Mark, ...] = Field(default=(), description="lines across the plot")
    takeaway: str = Field(description="what it says, in one or two sentences with figures")
    columns: tuple[str, ...] = Field(description="head of the table")
    rows: tuple[tuple[Cell, ...], ...] = Field(description="the same figures as a table")


class Section(Strict):
    """A question with the plots that answer it; one is shown at a time."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="unique name")
    title: str = Field(description="the question")
    reading: str = Field(description="how to read the plot")
    plots: tuple[Plot, ...] = Field(description="alternatives, the most telling first")
