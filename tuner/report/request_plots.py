"""Single requests: the timeline of a replay, and how latencies are distributed. From the kept times, without text."""

from collections.abc import Callable, Iterable, Sequence

from tuner.report.material import Material, Rival
from tuner.report.plots import Axis, Cell, Mark, Plot, Point, Role, Section, Series
from tuner.report.quantities import quantity
from tuner.request_times import RequestTimes

# More bars than this are no longer told apart on a screen.
MOST_BARS = 160
FAR = 2.5
SHARES = tuple(range(0, 101, 2))
LATENCIES = ("e2e", "ttft", "tpot")
Row = tuple[float, float | None, float | None, float, int, str | None, int | None, int | None]


def timelines(material: Material) -> Section | None:
    """Requests as bars, the baseline's replay above that of its rival, on one clock."""
    plots = tuple(
        plot
        for place, condition in enumerate(material.conditions)
        if (plot := _timeline(material, condition, place)) is not None
    )
    title = "What happened during a replay?"
    reading = "One bar a request: pale until its first token, full until its end. The same requests in both replays."
    return Section(id="timeline", title=title, reading=reading, plots=plots) if plots else None


def _timeline(material: Material, condition: str, place: int) -> Plot | None:
    series: list[Series] = []
    names: list[str] = []
    rows: list[tuple[Cell, ...]] = []
    words: list[str] = []
    for rival in material.rivals(condition):
        times = material.times(rival, condition)
        if not times:
            continue
        sent = list(_requests(times[0]))
        shown = sent[:MOST_BARS]
        lanes = _lanes(shown)
        points = tuple(_bar(row, len(names) + lane) for row, lane in zip(shown, lanes, strict=True))
        series.append(Series(name=f"{rival.name}: {rival.label}", role=_role(rival), points=points))
        names += [f"{rival.name} {number + 1}" for number in range(max(lanes, default=0) + 1)]
        rows += [_table_row(rival.name, row) for row in shown]
        words.append(_in_words(rival, sent))
    if not series:
        return None
    return Plot(
        id=f"timeline-{place}",
        name=condition,
        kind="timeline",
        x=Axis(label="seconds since the start of the replay", unit="s"),
        y=Axis(label="requests in flight", categories=tuple(names)),
        series=tuple(series),
        takeaway="; ".join(words).capitalize() + ".",
        columns=(
            "replay",
            "sent (s)",
            "first token (s)",
            "end (s)",
            "prompt tokens",
            "from cache",
            "output tokens",
            "error",
        ),
        rows=tuple(rows),
    )


def _in_words(rival: Rival, sent: list[Row]) -> str:
    cut = f" (the first {MOST_BARS} are shown)" if len(sent) > MOST_BARS else ""
    return f"{rival.name}: {len(sent)} requests in {max((row[3] for row in sent), default=0):.1f} s{cut}"


def _role(rival: Rival) -> Role:
    return "baseline" if rival.name == "baseline" else "recommended"


def _requests(times: RequestTimes) -> Iterable[Row]:
    """Requests that were sent, in order: sent, first token, last token, end, output tokens, error, prompt, cached."""
    columns = zip(
        times.sent_s,
        times.first_token_s,
        times.last_token_s,
        times.end_s,
        times.completion_tokens,
        times.error,
        times.prompt_tokens,
        times.cached_tokens,
        strict=True,
    )
    return ((sent, *rest) for sent, *rest in columns if sent is not None)


def _lanes(requests: Sequence[Row]) -> list[int]:
    """The first free lane of each, so that as many lanes are used as requests were in flight."""
    ends: list[float] = []
    chosen = []
    for sent, _, _, end, *_ in requests:
        lane = next((n for n, last in enumerate(ends) if last <= sent), len(ends))
        ends[lane : lane + 1] = [end]
        chosen.append(lane)
    return chosen


def _bar(row: Row, lane: int) -> Point:
    sent, first, _, end, tokens, error, prompt, cached = row
    note = f"{tokens} output tokens" if error is None else f"failed: {error}"
    if prompt is not None:
        note += f", {prompt} prompt tokens" + ("" if cached is None else f" ({cached} from the cache)")
    return Point(x=lane, y=end, low=sent, high=first, note=note)


def _table_row(name: str, row: Row) -> tuple[Cell, ...]:
    sent, first, _, end, tokens, error, prompt, cached = row
    return (name, sent, first, end, prompt, cached, tokens, error)


def latencies(material: Material) -> Section | None:
    """The share of requests that were served within a time: one plot for each condition and latency."""
    plots = tuple(
        plot
        for place, condition in enumerate(material.conditions)
        for name in LATENCIES
        if (plot := _latency(material, condition, place, name)) is not None
    )
    title = "How long do requests wait?"
    reading = "Height: share of the requests that were served within that time. Further left is better."
    return Section(id="latency", title=title, reading=reading, plots=plots) if plots else None


def _latency(material: Material, condition: str, place: int, name: str) -> Plot | None:
    shown = quantity(f"{name}_p50_s")
    series: list[Series] = []
    rows: list[tuple[Cell, ...]] = []
    words: list[str] = []
    for rival in material.rivals(condition):
        values = sorted(v * shown.factor for t in material.times(rival, condition) for v in _latencies(t, name))
        if len(values) < 2:
            continue
        points = tuple(Point(x=_quantile(values, p), y=p) for p in SHARES)
        series.append(Series(name=f"{rival.name}: {rival.label}", role=_role(rival), style="line", points=points))
        median, p90, p99 = (_quantile(values, p) for p in (50, 90, 99))
        rows.append((f"{rival.name}: {rival.label}", len(values), median, p90, p99, values[-1]))
        words.append(
            f"{rival.name} median {shown.text(median / shown.factor)}, 90% within {shown.text(p90 / shown.factor)}"
        )
    if not series:
        return None
    short = name.upper()
    longest = max(p.x for one in series for p in one.points)
    limits = [slo for slo in material.slos if slo.metric.startswith(f"{name}_")]
    words += [f"the SLO {slo.metric} is {shown.text(slo.limit_s)}" for slo in limits]
    # A limit far beyond every latency would squeeze the curves into a corner.
    near = [slo for slo in limits if slo.limit_s * shown.factor < FAR * longest]
    return Plot(
        id=f"latency-{place}-{name}",
        name=f"{condition}: {short}",
        kind="xy",
        x=Axis(label=f"{short} (ms)", unit="ms"),
        y=Axis(label="requests served within (%)", unit="%"),
        series=tuple(series),
        marks=tuple(Mark(axis="x", at=slo.limit_s * shown.factor, label=f"SLO {slo.metric}") for slo in near),
        takeaway=f"{short}: {'; '.join(words)}.",
        columns=("configuration", "requests", "median (ms)", "90% (ms)", "99% (ms)", "longest (ms)"),
        rows=tuple(rows),
    )


def _latencies(times: RequestTimes, name: str) -> Iterable[float]:
    """One latency of each successful request, by vLLM's definitions as in workloads/outcome.py."""
    compute: dict[str, Callable[[Row], float | None]] = {
        "ttft": lambda r: None if r[1] is None else r[1] - r[0],
        "tpot": lambda r: None if r[1] is None or r[2] is None or r[4] < 2 else (r[2] - r[1]) / (r[4] - 1),
        "e2e": lambda r: r[3] - r[0],
    }
    found = (compute[name](row) for row in _requests(times) if row[5] is None)
    return (value for value in found if value is not None)


def _quantile(ordered: list[float], percent: float) -> float:
    """Linear between ranks, as everywhere in this project."""
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
