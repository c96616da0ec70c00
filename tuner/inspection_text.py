"""An inspection in words: short rows that the command line and the page both show. Computes nothing."""

from collections.abc import Iterator

from workloads import Inspection, Quantiles, Traffic

SHOWN_REJECTED = 5
"""Rejected lines that are listed; JSON has all."""


def lines(found: Inspection) -> Iterator[str]:
    """The whole inspection as lines."""
    yield heading(found)
    yield from (_row("note", note) for note in found.notes)
    yield "whole"
    yield from _indented(found.whole)
    for name, traffic in found.profiles.items():
        if traffic.requests == found.whole.requests:
            yield f"profile {name}: all of it"
            continue
        yield f"profile {name}: {traffic.share:.0%} of the requests"
        yield from _indented(traffic)
    yield from (_row(*said) for said in _unsent(found))
    yield from (_row("rejected", text) for text in rejected(found))
    yield from (_row("problem", problem) for problem in found.problems)


def _unsent(found: Inspection) -> Iterator[tuple[str, str]]:
    """What a replay does not send as recorded; a model's name is replaced on purpose, which is no loss."""
    named = {name: count for name, count in found.unhonoured.items() if name.startswith("model name ")}
    if named:
        names = ", ".join(name.removeprefix("model name ") for name in named)
        yield "model name", f"{names}: the served model's name is sent in its place, as it should be"
    for name, count in found.unhonoured.items():
        if name not in named:
            yield "not sent", f"{name}: {count:,} {'time' if count == 1 else 'times'}"


def heading(found: Inspection) -> str:
    """The file in one line."""
    return f"{found.path}: {found.format} format, {found.whole.requests:,} requests, {found.digest[:19]}"


def rejected(found: Inspection) -> Iterator[str]:
    """The first rejected lines and how many more there are."""
    for line in found.rejected[:SHOWN_REJECTED]:
        yield f"line {line.line}: {line.reason}"
    if len(found.rejected) > SHOWN_REJECTED:
        yield f"{len(found.rejected) - SHOWN_REJECTED} more lines, see --json"


def rows(traffic: Traffic) -> Iterator[tuple[str, str]]:
    """What is known of some traffic: what it is about, and the figures."""
    if traffic.because:
        yield "because", "; ".join(traffic.because)
    yield "requests", _requests(traffic)
    if traffic.models.keys() - {""}:
        yield "models", ", ".join(f"{name or 'none'} ({count:,})" for name, count in traffic.models.items())
    if traffic.prompt_tokens:
        yield "prompt tokens", _quantiles(traffic.prompt_tokens) + _estimated(traffic)
    if traffic.output_tokens:
        known = "" if traffic.output_tokens.count == traffic.requests else f", of {traffic.output_tokens.count:,}"
        yield "output tokens", _quantiles(traffic.output_tokens) + known
    if traffic.max_tokens:
        yield "max_tokens", _quantiles(traffic.max_tokens)
    yield from _times(traffic)
    yield from _sessions(traffic)
    yield from _sharing(traffic)
    yield from _sampling(traffic)


def _indented(traffic: Traffic) -> Iterator[str]:
    return ("  " + _row(name, text) for name, text in rows(traffic))


def _row(name: str, text: str) -> str:
    return f"{name:<15} {text}"


def _requests(traffic: Traffic) -> str:
    failed = f", {traffic.failed:,} of them failed when recorded" if traffic.failed else ""
    if traffic.conversations.without_session == traffic.requests:
        return f"{traffic.requests:,}, none with a session{failed}"
    return f"{traffic.requests:,} in {traffic.conversations.sessions:,} sessions{failed}"


def _estimated(traffic: Traffic) -> str:
    if not traffic.prompt_tokens_estimated:
        return ""
    if traffic.prompt_tokens_estimated == traffic.requests:
        return ", estimated at 4 characters a token"
    return f", {traffic.prompt_tokens_estimated:,} of them estimated at 4 characters a token"


def _times(traffic: Traffic) -> Iterator[tuple[str, str]]:
    arrivals, concurrency = traffic.arrivals, traffic.concurrency
    if arrivals:
        rate = f"{arrivals.rate:.3g}/s" if arrivals.rate else "all at once"
        gaps = f", gaps vary by {arrivals.gap_cv:.2f} (1 is Poisson)" if arrivals.gap_cv is not None else ""
        yield "arrivals", f"{rate} over {arrivals.span_s:,.0f} s{gaps}"
        for window in arrivals.windows:
            peak = f"{window.peak_rate:.3g}/s, {window.peak_to_mean:.1f} times the mean"
            yield f"busiest {window.window_s} s", f"{peak}; counts vary by {window.dispersion:.2f} (1 is Poisson)"
    if concurrency:
        little = f", {concurrency.mean_by_little:.2f} by rate x duration" if concurrency.mean_by_little else ""
        of = "" if concurrency.known == traffic.requests else f", of the {concurrency.known:,} with a duration"
        yield "at once", f"mean {concurrency.mean:.2f}{little}, peak {concurrency.peak}{of}"


def _sessions(traffic: Traffic) -> Iterator[tuple[str, str]]:
    sessions = traffic.conversations
    if sessions.without_session == traffic.requests or sessions.turns is None:
        return
    one = f"; sessions of one request: {sessions.one_request:,}" if sessions.one_request else ""
    yield "turns", _quantiles(sessions.turns) + one
    if sessions.think_s:
        yield "think time", _quantiles(sessions.think_s) + " s"
    elif sessions.between_turns_s:
        yield "between turns", _quantiles(sessions.between_turns_s) + " s from arrival to arrival"
    if sessions.overlapping:
        yield "overlapping", f"{sessions.overlapping:,} turns arrived before the one before them had ended"


def _sharing(traffic: Traffic) -> Iterator[tuple[str, str]]:
    sharing = traffic.prefix_sharing
    if any(each.hit_rate for each in sharing.hit_rates):
        rates = ", ".join(f"{each.kv_block_size}: {each.hit_rate:.1%}" for each in sharing.hit_rates)
        yield "prefix hits", f"by KV block size, {rates}"
    else:
        yield "prefix hits", "none at any KV block size"
    if sharing.recorded_hit_rate is not None:
        yield "recorded hits", f"{sharing.recorded_hit_rate:.1%}"
    if sharing.repeated_prompts:
        yield "repeated", f"{sharing.repeated_prompts:,} prompts are those of an earlier request"


def _sampling(traffic: Traffic) -> Iterator[tuple[str, str]]:
    mix = traffic.sampling
    names = (("default" if value is None else f"{value:g}", count) for value, count in mix.temperatures)
    yield "temperature", ", ".join(f"{name} ({count:,})" for name, count in names)
    others = {**mix.settings, "structured output": mix.structured_output, "tools": mix.tools}
    others |= {"n above 1": mix.several_choices, "images or sounds": mix.media, "code": mix.code}
    told = [f"{name} ({count:,})" for name, count in others.items() if count]
    if told:
        yield "also", ", ".join(told)


def _quantiles(values: Quantiles) -> str:
    if values.minimum == values.maximum:
        return f"{_number(values.mean)} each"
    return (
        f"mean {_number(values.mean)}, p50 {_number(values.p50)}, p90 {_number(values.p90)}, "
        f"p99 {_number(values.p99)}, least {_number(values.minimum)}, most {_number(values.maximum)}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
