"""What a person sees: lines while the study runs, tables when it is done. Plain text where there is no terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from tuner.breakdown import Breakdown
from tuner.plan import Plan
from tuner.records import Recommendation, TrialPlan, TrialRecord


class Narrator:
    """Prints a study as it goes."""

    def __init__(self, *, quiet: bool = False) -> None:
        # Off a terminal a table must not be squeezed to 80 columns; logs have no right edge.
        self.console = Console(highlight=False, quiet=quiet, soft_wrap=True)
        self._status: Status | None = None
        self._table_console = (
            self.console if self.console.is_terminal else Console(highlight=False, quiet=quiet, width=140)
        )

    def line(self, text: str = "") -> None:
        """One line, any markup in it shown as it is, and nothing that a terminal would take for an order."""
        self.console.print(
            escape("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text))
        )

    def trial_began(self, trial: TrialPlan) -> None:
        """A trial is about to be launched."""
        self.line(f"trial {trial.number:3d}  {trial.phase}: {trial.serve_config.label()}")

    def trial_ended(self, record: TrialRecord) -> None:
        """A trial is on disk; the tables at the end show it."""

    def phase(self, text: str | None) -> None:
        """What an engine's start is busy with, on a terminal only; None ends it: nothing draws while measuring."""
        if self._status is not None and text is None:
            self._status.stop()
            self._status = None
        elif self._status is not None:
            self._status.update(escape(text or ""))
        elif text is not None and self.console.is_terminal:
            self._status = self.console.status(escape(text))
            self._status.start()

    def plan(self, plan: Plan) -> None:
        """What the study is about to do."""
        config = plan.config
        self.line(
            f"workload    {plan.workload.path}: {len(plan.workload.requests)} requests, {plan.workload.format} format"
        )
        for profile in plan.profiles:
            self.line(
                f"  profile   {profile.name}: {len(profile.requests)} requests in {len(profile.sessions())} sessions"
            )
        self.line(f"engine      vLLM {plan.engine_version} on {', '.join(plan.gpus) or 'CPU'}")
        self.line(
            f"search      {plan.space.name}: {plan.space.size()} combinations of {', '.join(plan.space.tunable())}"
        )
        self.line(f"conditions  {', '.join(f'{c.key} at {c.load}' for c in plan.conditions)}")
        self.line(
            f"launches    {config.trials} to search, then {config.rounds} rounds to confirm, in {config.directory}"
        )
        for warning in plan.warnings:
            self.line(f"warning     {warning}")

    def refused(self, refused: Mapping[str, tuple[int, str]], *, looked_at: int) -> None:
        """What will not be launched, and why."""
        for count, reason in refused.values():
            self.line(f"refused     {count / looked_at:.0%} of the combinations, for example: {reason}")

    def recommendations(self, answers: Sequence[Recommendation]) -> None:
        """The answer as a table, then the reasons."""
        table = Table(title="Recommendations", title_justify="left")
        for column in ("profile", "recommended", "baseline", "value", "gain", "interval", "outputs"):
            table.add_column(column, overflow="fold")
        for a in answers:
            effect = a.effect
            table.add_row(
                escape(a.condition),
                escape(a.serve_config.label()) if a.verdict == "change" else f"keep the baseline ({a.verdict})",
                _value(a.baseline_value, a.objective),
                _value(a.value, a.objective),
                f"{effect.gain:.2f}x" if effect else "-",
                f"{effect.low:.2f} to {effect.high:.2f}" if effect else "-",
                a.output_check.verdict if a.output_check else "-",
            )
        self._table_console.print(table)
        for a in answers:
            self.line(f"{a.condition}: {a.reason}")
            for caveat in a.caveats:
                self.line(f"  caveat: {caveat}")

    def trials(self, records: Sequence[TrialRecord], metric: str) -> None:
        """All trials with the objective of each condition."""
        conditions = sorted({key for record in records for key in record.measurements})
        table = Table(title=f"Trials ({metric})", title_justify="left")
        for column in ("trial", "phase", "configuration", *conditions, "status"):
            table.add_column(escape(column), overflow="fold")
        for record in records:
            cells = []
            for key in conditions:
                measurement = record.measurements.get(key)
                value = measurement.metrics.get(metric) if measurement else None
                mark = "" if measurement is None or measurement.valid else " invalid"
                cells.append("-" if value is None else f"{value:.4g}{mark}")
            status = record.status if not record.failure else f"{record.status}: {record.failure.kind}"
            number, phase = str(record.plan.number), record.plan.phase
            table.add_row(number, phase, escape(record.plan.serve_config.label()), *cells, status)
        self._table_console.print(table)

    def breakdown(self, breakdown: Breakdown) -> None:
        """Where the time went."""
        shares = breakdown.shares()
        text = ", ".join(f"{name} {seconds:.0f} s ({share:.1%})" for name, (seconds, share) in shares.items())
        self.line(f"time        {breakdown.total_s:.0f} s: {text}")

    def where(self, directory: Path, tracking_uri: str | None) -> None:
        """Where things are and what to type next."""
        self.line(f"exports     {directory}/recommended/<profile>/serve.yaml and serve.sh")
        if (directory / "report.html").is_file():
            self.line(f"report      {directory}/report.html")
        if tracking_uri:
            self.line(f"review      mlflow ui --backend-store-uri {tracking_uri}")
        self.line(f"again       tune show {directory.name} --out {directory.parent}")


def summary_markdown(answers: Sequence[Recommendation]) -> str:
    """The answer for MLflow's notes."""
    rows = ["| profile | recommended | gain | interval | why |", "|---|---|---|---|---|"]
    for a in answers:
        effect = a.effect
        name = a.serve_config.label() if a.verdict == "change" else f"keep the baseline ({a.verdict})"
        gain, interval = (f"{effect.gain:.2f}x", f"{effect.low:.2f} to {effect.high:.2f}") if effect else ("-", "-")
        cells = (a.condition, name, gain, interval, a.reason)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _value(value: float, metric: str) -> str:
    if metric == "output_tok_s":
        return f"{value:.1f} tok/s"
    return f"{value * 1000:.1f} ms"
