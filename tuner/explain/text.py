"""An explanation on the terminal: the answer first, then what it rests on, as tables."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tuner.explain.records import Acceptance, Explanation, Figure, Interaction, LoadCurve, SpeedModel

ROWS = 12
"""Rows of a table on the terminal; --json has all."""


def print_explanation(explanation: Explanation, console: Console | None = None) -> None:
    """Prints it; off a terminal tables are wide and plain."""
    out = console or Console(highlight=False, soft_wrap=True)
    if console is None and not out.is_terminal:
        out = Console(highlight=False, width=140)
    e = explanation
    marked = ", SIMULATED" if e.simulated else ""
    _line(out, f"study {e.study}, vLLM {e.engine_version}{marked}, {e.objective} ({e.objective_unit})")
    for line in e.summary:
        _line(out, f"  {line}")
    for finding in e.findings:
        _line(out, f"\n{finding.condition}: {finding.title}")
        _line(out, f"  evidence  {finding.evidence} (trials {', '.join(map(str, finding.trials))})")
        if finding.recovery:
            _line(out, f"  predicted {_figure(finding.recovery)}x from the remedy")
        _line(out, f"  remedy    {finding.remedy}")
    _interactions(out, e.interactions)
    _cache(out, e)
    _acceptance(out, e.acceptance)
    _lengths(out, e)
    for model in e.speed:
        _speed(out, model)
    for curve in e.load_curves:
        _curve(out, curve)
    _importance(out, e)
    for line in e.missing:
        _line(out, f"not answered: {line}")


def _interactions(out: Console, rows: Sequence[Interaction]) -> None:
    cells = [
        (
            row.condition,
            f"{row.first} x {row.second}" + (f" ({row.context})" if row.context else ""),
            *(f"{corner.gain.value:.2f}" for corner in (row.first_only, row.second_only, row.both)),
            f"{row.expected_gain:.2f}",
            "-" if row.additive_gain is None else f"{row.additive_gain:.2f}",
            _figure(row.difference),
            ", ".join(row.causes) or "-",
        )
        for row in rows
    ]
    heads = (
        "condition",
        "settings",
        "first",
        "second",
        "both",
        "if independent",
        "if savings add",
        "both/independent",
        "cause",
    )
    _table(out, "Interactions (gain over neither)", heads, cells)


def _cache(out: Console, e: Explanation) -> None:
    cells = [
        (
            row.condition,
            row.label,
            f"{row.cached_tokens:,.0f}",
            f"{row.ideal_tokens:,.0f}",
            str(row.kv_block_tokens or "-"),
            "-" if row.lost_blocks_per_request is None else f"{row.lost_blocks_per_request:.2f}",
            {True: "yes", False: "no", None: "unknown"}[row.drops],
        )
        for row in e.cache_use
    ]
    heads = ("condition", "configuration", "cached", "ideal", "KV block", "blocks lost per request", "drops by release")
    _table(out, "Cached prompt tokens", heads, cells)


def _acceptance(out: Console, rows: Sequence[Acceptance]) -> None:
    cells = [
        (
            row.condition,
            row.label,
            f"{row.rate.value:.1%}",
            _figure(row.length),
            " ".join(f"{p:.2f}" for p in row.curve),
            f"{row.drafted_tokens:,}",
            f"{row.wasted_tokens:,}",
        )
        for row in rows
    ]
    heads = ("condition", "configuration", "rate", "length", "p_1 ... p_K", "drafted", "wasted")
    _table(out, "Acceptance", heads, cells)


def _lengths(out: Console, e: Explanation) -> None:
    cells = [
        (
            row.condition,
            "-" if row.concurrency is None else f"{row.concurrency:.1f}",
            f"K={row.implied_k} ({row.predicted[row.implied_k]:.2f}x)",
            f"K={row.best_k} ({row.measured[row.best_k]:.2f}x)",
        )
        for row in e.best_lengths
    ]
    _table(out, "Draft length", ("condition", "in flight", "implied by the curve", "measured best"), cells)


def _speed(out: Console, model: SpeedModel) -> None:
    cells = [
        (
            point.condition,
            str(point.k),
            f"{point.batch:.1f}",
            f"{point.target_step_s * 1000:.2f}",
            f"{point.step_s * 1000:.2f}",
            f"{point.acceptance_length:.2f}",
            f"{point.predicted:.2f}",
            _figure(point.measured),
            f"{point.one_pass:.2f}",
            "-" if point.leviathan is None else f"{point.leviathan:.2f}",
        )
        for point in model.points
    ]
    heads = (
        "condition", "K", "running", "target ms", "step ms", "length", "predicted", "measured", "E/(1+c)", "Leviathan",
    )  # fmt: skip
    name = f"Speed of {model.method}, {model.profile}" + (
        "" if model.temperature is None else f" at temperature {model.temperature:g}"
    )
    _table(out, name, heads, cells)
    if model.draft_s is not None and model.verify_s_per_token is not None:
        _line(
            out,
            f"  draft pass {model.draft_s * 1000:.2f} ms, verification {model.verify_s_per_token * 1e6:.0f} us per "
            f"added token, error of the fit {model.error or 0:.1%}",
        )
    for assumption in model.assumptions:
        _line(out, f"  assumed: {assumption}")


def _curve(out: Console, curve: LoadCurve) -> None:
    cells = [
        (
            f"{series.label} ({series.role})" if number == 0 else "",
            f"{point.concurrency:.4g}",
            _figure(point.output_tok_s, ".1f"),
            _ms(point.ttft_s),
            _ms(point.tpot_s),
            _ms(point.e2e_s),
            "-" if point.goodput_rate is None else f"{point.goodput_rate:.2f}",
        )
        for series in curve.series
        for number, point in enumerate(series.points)
    ]
    heads = ("configuration", "in flight", "tok/s", "TTFT ms", "TPOT ms", "E2E ms", "goodput/s")
    _table(out, f"Load curve of {curve.profile}", heads, cells, limit=60)
    where = f"below {curve.crossover:.1f} requests in flight" if curve.crossover else curve.speculation_wins
    _line(out, f"  speculation wins: {where}")
    for series in curve.series:
        if series.saturation:
            _line(out, f"  {series.label} is saturated from {series.saturation:g} requests in flight on")


def _importance(out: Console, e: Explanation) -> None:
    cells = [
        (row.condition, row.knob, _figure(row.share), "yes" if row.matters else "no", row.best_value)
        for row in e.importances
    ]
    _table(out, "Importance of knobs (PED-ANOVA)", ("condition", "knob", "share", "matters", "best value"), cells)


def _table(out: Console, title: str, heads: Sequence[str], rows: Sequence[Iterable[str]], *, limit: int = ROWS) -> None:
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(escape(cell) for cell in row))
    _line(out, "")
    out.print(table)
    if len(rows) > limit:
        _line(out, f"  {len(rows) - limit} more rows with --json")


def _figure(figure: Figure, form: str = ".2f") -> str:
    if figure.low is None or figure.high is None:
        return format(figure.value, form)
    return f"{figure.value:{form}} ({figure.low:{form}} to {figure.high:{form}})"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}"


def _line(out: Console, text: str) -> None:
    out.print(escape(text))
