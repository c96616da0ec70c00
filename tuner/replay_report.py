"""The result of `tune replay`: one measurement of a running server, as JSON and as a table."""

from collections.abc import Iterator

import orjson
from pydantic import BaseModel, ConfigDict, Field

from workloads import ReplayMetrics, ReplayResult, client_problems, flat_metrics

ROWS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "chunk_gap": "gap between events",
    "e2e": "end to end",
    "e2e_scheduled": "end to end, from when due",
    "send_lag": "sent late by",
    "loop_lag": "client's own delay",
}


class Accounting(BaseModel):
    """Where every request went: requests = sent + never_sent = completed + timed_out + abandoned + other_failures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: int = Field(description="requests of the measurement")
    sent: int = Field(description="requests that the client began to send")
    never_sent: int = Field(description="requests that the deadline left unsent; part of abandoned")
    completed: int = Field(description="requests whose stream ended well")
    timed_out: int = Field(description="requests without an end within --request-timeout")
    abandoned: int = Field(description="requests given up at the deadline, sent or not")
    other_failures: dict[str, int] = Field(description="further failed requests by class, such as http_503")


class ReplayReport(BaseModel):
    """One measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str = Field(description="name of the profile")
    load: str = Field(description="how the replay was driven")
    model: str = Field(description="model name in the requests")
    started_at: str = Field(description="UTC time of the start")
    duration_s: float = Field(description="from the start to the end of the last request; vLLM's `duration`")
    valid: bool = Field(description="whether the load was what was asked for; if not, the figures mean nothing")
    problems: tuple[str, ...] = Field(description="why it is not valid, one sentence each")
    accounting: Accounting = Field(description="where every request went")
    client_processes: int = Field(description="processes that sent")
    client_cpu_s: float = Field(description="CPU seconds of the client during the replay")
    whole_output_tok_s: float | None = Field(description="output tokens / duration; vLLM's `output_throughput`")
    whole_request_rate: float | None = Field(description="completed / duration; vLLM's `request_throughput`")
    metrics: dict[str, float] = Field(description="the measurement's metrics, see docs/metrics.md")
    engine: dict[str, float] = Field(description="from the engine's counters, see docs/metrics.md; empty without them")


def make_report(
    result: ReplayResult,
    metrics: ReplayMetrics,
    *,
    profile: str,
    model: str,
    started_at: str,
    client_processes: int,
    engine: dict[str, float],
) -> ReplayReport:
    """Puts a replay's metrics into the report's form."""
    problems = tuple(client_problems(metrics, result.load, result.outcomes))
    seconds = result.duration_s
    return ReplayReport(
        profile=profile,
        load=str(result.load),
        model=model,
        started_at=started_at,
        duration_s=seconds,
        valid=not problems,
        problems=problems,
        accounting=Accounting(
            requests=metrics.requests,
            sent=metrics.sent,
            never_sent=metrics.requests - metrics.sent,
            completed=metrics.completed,
            timed_out=metrics.errors.get("timeout", 0),
            abandoned=metrics.errors.get("abandoned", 0),
            other_failures={
                name: count for name, count in metrics.errors.items() if name not in {"timeout", "abandoned"}
            },
        ),
        client_processes=client_processes,
        client_cpu_s=result.client_cpu_s,
        whole_output_tok_s=metrics.completion_tokens / seconds if seconds else None,
        whole_request_rate=metrics.completed / seconds if seconds else None,
        metrics=flat_metrics(metrics),
        engine=engine,
    )


def print_report(report: ReplayReport) -> None:
    """The measurement as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    a, metrics = report.accounting, report.metrics
    failed = "".join(f", {count} {name}" for name, count in sorted(a.other_failures.items()))
    console.print(escape(f"profile {report.profile}, {report.load}, model {report.model}, {report.duration_s:.1f} s"))
    console.print(
        f"requests  {a.requests}: {a.completed} completed, {a.timed_out} timed out, {a.abandoned} abandoned "
        f"({a.never_sent} never sent){failed}"
    )
    console.print(
        f"output    {_figure(metrics, 'output_tok_s')} tokens/s at full load, "
        f"{_or_dash(report.whole_output_tok_s)} over all"
    )
    console.print(
        f"tokens    {metrics['prompt_tokens']:.0f} in, {metrics['completion_tokens']:.0f} out, "
        f"{_figure(metrics, 'tokens_per_chunk', '.2f')} per event; "
        f"{_figure(metrics, 'in_flight_mean', '.2f')} requests in flight"
    )
    table = Table("ms", "mean", "p50", "p90", "p99", title=None)
    for name, words in ROWS.items():
        if f"{name}_mean_s" in metrics:
            values = [f"{metrics[f'{name}_{statistic}_s'] * 1000:.2f}" for statistic in ("mean", "p50", "p90", "p99")]
            table.add_row(words, *values)
    console.print(table)
    for name, value in report.engine.items():
        console.print(f"engine    {name} {value:.4g}")
    for problem in report.problems:
        console.print(escape(f"INVALID   {problem}"))


def request_lines(result: ReplayResult) -> Iterator[bytes]:
    """A line of JSON for each request: times in seconds since the start, counts, and no text of prompt or output."""
    for outcome in result.outcomes:
        line = {
            "id": outcome.request_id,
            "scheduled_s": outcome.scheduled_s,
            "sent_s": outcome.sent_s,
            "end_s": outcome.end_s,
            "ttft_s": outcome.ttft_s,
            "tpot_s": outcome.tpot_s,
            "e2e_s": outcome.e2e_s,
            "prompt_tokens": outcome.prompt_tokens,
            "completion_tokens": outcome.completion_tokens,
            "cached_tokens": outcome.cached_tokens,
            "finish_reason": outcome.finish_reason,
            "error": outcome.error,
        }
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _figure(metrics: dict[str, float], name: str, form: str = ".1f") -> str:
    return format(metrics[name], form) if name in metrics else "-"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
