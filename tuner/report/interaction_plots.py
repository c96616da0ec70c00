"""Two settings alone and together, as a map of four cells."""

from tuner.explain.records import Corner, Interaction
from tuner.report.material import Material
from tuner.report.plots import Axis, Plot, Point, Section, Series
from tuner.report.quantities import gain, interval, number, quantity, share

# Beyond so many squares nobody looks; speculation with prefix caching comes first.
MOST = 40


def interactions(material: Material) -> Section | None:
    """One map for each pair of settings that the study crossed."""
    place_of = {condition: n for n, condition in enumerate(material.conditions)}
    # Stable: within a condition the explanation's order, speculation with prefix caching first, stays.
    rows = sorted(material.explanation.interactions, key=lambda row: place_of[row.condition])
    rows.sort(key=lambda row: (not row.first.startswith("speculation"), not row.second.startswith("prefix caching")))
    rows = rows[:MOST]
    plots = tuple(_plot(material, row, place) for place, row in enumerate(rows))
    title = "Do two settings hinder each other?"
    reading = "Gain over neither. If two settings were independent, both together would gain the product of the two."
    return Section(id="interaction", title=title, reading=reading, plots=plots) if plots else None


def _plot(material: Material, row: Interaction, place: int) -> Plot:
    shown = quantity(material.objective.metric)
    corners = ((0, 0, row.neither), (1, 0, row.first_only), (0, 1, row.second_only), (1, 1, row.both))
    points = tuple(
        Point(x=x, y=y, value=corner.gain.value, low=corner.gain.low, high=corner.gain.high, note=_note(corner))
        for x, y, corner in corners
    )
    context = f" ({row.context})" if row.context else ""
    return Plot(
        id=f"interaction-{place}",
        name=f"{row.condition}: {row.first} x {row.second}{context}",
        kind="heat",
        x=Axis(label=row.first, categories=(f"no {_bare(row.first)}", f"with {row.first}")),
        y=Axis(label=row.second, categories=(f"no {_bare(row.second)}", f"with {row.second}")),
        series=(Series(name="gain over neither", points=points),),
        takeaway=_in_words(row),
        columns=(
            "configuration",
            shown.label,
            "gain over neither",
            "interval",
            "tokens per step",
            "prompt tokens from cache",
        ),
        rows=tuple(
            (
                corner.label,
                corner.value * shown.factor,
                gain(corner.gain.value),
                interval(corner.gain.low, corner.gain.high),
                corner.acceptance_length,
                share(corner.hit_rate),
            )
            for _, _, corner in corners
        ),
    )


def _bare(setting: str) -> str:
    """A setting without its value."""
    return setting.partition(" (")[0]


def _note(corner: Corner) -> str:
    parts = [corner.label]
    if corner.acceptance_length is not None:
        parts.append(f"{number(corner.acceptance_length)} tokens per step")
    if corner.hit_rate is not None:
        parts.append(f"{share(corner.hit_rate)} of the prompt from the cache")
    return "; ".join(parts)


def _in_words(row: Interaction) -> str:
    d = row.difference
    ends = "" if d.low is None or d.high is None else f" (interval {interval(d.low, d.high)})"
    if d.low is None or d.high is None:
        verdict = "No interval: too few blocks to tell."
    elif d.low > 1:
        verdict = "They help each other."
    elif d.high < 1:
        verdict = "They hinder each other."
    else:
        verdict = "No reliable difference from independent."
    causes = f" Cause: {', '.join(row.causes)}." if row.causes else ""
    return (
        f"Both gain {gain(row.both.gain.value)}, {gain(row.expected_gain)} were expected: a factor of "
        f"{d.value:.2f}{ends}. {verdict}{causes}"
    )
