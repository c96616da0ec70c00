"""What the draft achieves: the share accepted by position, and the step against the formulas."""

from collections.abc import Iterable

from tuner.explain.records import Acceptance
from tuner.report.material import Material
from tuner.report.plots import Axis, Plot, Point, Section, Series
from tuner.report.quantities import number, share

CURVES = 6


def acceptance(material: Material) -> Section | None:
    """One plot of p_k for each condition that was measured with speculation."""
    rows = material.explanation.acceptance
    keys = [key for key in material.conditions if any(row.condition == key and row.curve for row in rows)]
    plots = tuple(
        _plot(material, key, place, [row for row in rows if row.condition == key and row.curve])
        for place, key in enumerate(keys)
    )
    title = "How far ahead does the draft guess right?"
    reading = (
        "p_k: share of the drafts of which position k was accepted. Where the curve is low, a larger K drafts in vain."
    )
    return Section(id="acceptance", title=title, reading=reading, plots=plots) if plots else None


def _plot(material: Material, condition: str, place: int, rows: list[Acceptance]) -> Plot:
    answer = material.answer(condition)
    chosen = answer.serve_config.label() if answer and answer.verdict == "change" else None
    return Plot(
        id=f"acceptance-{place}",
        name=condition,
        kind="xy",
        x=Axis(label="position k in the draft", zero=False),
        y=Axis(label="accepted (% of drafts)", unit="%"),
        series=tuple(_series(row, recommended=row.label == chosen) for row in _shown(rows, chosen)),
        takeaway=_in_words(rows, material, condition),
        columns=("configuration", "K", "acceptance rate", "tokens per step", "drafted", "wasted", "p_1", "p_K"),
        rows=tuple(
            (
                row.label,
                row.k,
                share(row.rate.value),
                number(row.length.value),
                row.drafted_tokens,
                row.wasted_tokens,
                share(row.curve[0]),
                share(row.curve[-1]),
            )
            for row in rows
        ),
    )


def _shown(rows: Iterable[Acceptance], chosen: str | None) -> list[Acceptance]:
    """The recommended curve and the longest ones, one for each method and K; more would hide one another."""
    first: dict[tuple[str, int], Acceptance] = {}
    for row in sorted(rows, key=lambda row: (row.label != chosen, len(row.label))):
        first.setdefault((row.method, row.k), row)
    kept = list(first.values())
    best, others = kept[:1], sorted(kept[1:], key=lambda row: -row.k)
    return sorted([*best, *others[: CURVES - 1]], key=lambda row: (row.method, row.k))


def _series(row: Acceptance, *, recommended: bool) -> Series:
    points = tuple(Point(x=k, y=p * 100, note=row.label) for k, p in enumerate(row.curve, start=1))
    name = f"{row.method} K={row.k}" + (" (recommended)" if recommended else "")
    return Series(name=name, role="recommended" if recommended else "other", style="both", points=points)


def _in_words(rows: list[Acceptance], material: Material, condition: str) -> str:
    longest = max(rows, key=lambda row: row.length.value)
    text = (
        f"Most tokens per step: {number(longest.length.value)} with {longest.label}; "
        f"{share(longest.wasted_tokens / max(1, longest.drafted_tokens))} of what it drafted was in vain."
    )
    lengths = next((row for row in material.explanation.best_lengths if row.condition == condition), None)
    if lengths is None:
        return text
    implied, best = _k(lengths.implied_k), _k(lengths.best_k)
    return f"{text} K by the curve and the measured step costs: {implied}; measured best: {best}."


def _k(k: int) -> str:
    return str(k) if k else "no speculation"
