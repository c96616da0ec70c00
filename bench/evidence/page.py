"""docs/evidence/interaction.md from what was measured: a table each, and what `tune explain` says of it."""

import json
from pathlib import Path

from tuner.explain import Explanation, explain_study
from tuner.explain.records import Figure
from tuner.store import Store

HEAD = """# Block drop, temperature and load on a real engine

Made by `.venv/bin/python -m bench.evidence.interaction report` from the measurements of its other steps (`cached`,
`interaction`, `temperature`, `load`); do not edit. vLLM {version} on {cpu}, the demo pair, float32, eager, one
launch per configuration. Intervals are over blocks of one launch; they say nothing about how launches differ.
"""


def write_page(path: Path, out: Path, names: list[str]) -> None:
    """Writes the page from the studies that are there."""
    parts: list[str] = []
    head = ""
    for name in names:
        if not (out / name / "study.json").is_file():
            continue
        store = Store.open(out, name)
        explanation, provenance = explain_study(store), store.provenance()
        if provenance is not None:
            head = HEAD.format(version=explanation.engine_version, cpu=provenance.cpu)
        parts += {"interaction": _interaction, "temperature": _temperature, "load": _load}[name](explanation)
    cached = out / "cached.json"
    if cached.is_file():
        parts = [*_cached(json.loads(cached.read_text(encoding="utf-8"))), *parts]
    path.write_text("\n".join([head, *parts]) + "\n", encoding="utf-8")


def _cached(found: dict[str, dict[str, list[int]]]) -> list[str]:
    rows = [
        f"| {tokens} | " + " | ".join(" / ".join(map(str, own[tokens])) for own in found.values()) + " |"
        for tokens in next(iter(found.values()))
    ]
    return [
        "## Cached tokens, KV block of 32",
        "",
        "The same prompt again / the prompt with 40 tokens more; `usage.prompt_tokens_details.cached_tokens`.",
        "",
        f"| prompt tokens | {' | '.join(found)} |",
        "|---|" + "---|" * len(found),
        *rows,
        "",
    ]


def _interaction(e: Explanation) -> list[str]:
    corners = {c.label: c for row in e.interactions for c in (row.neither, row.first_only, row.second_only, row.both)}
    lines = [
        "## Speculation x prefix caching on a long shared prompt, concurrency 1",
        "",
        "| configuration | tok/s | gain over neither | hit rate | acceptance length |",
        "|---|---|---|---|---|",
        *(
            f"| {label} | {c.value:.1f} | {_figure(c.gain)} | {_or_dash(c.hit_rate)} | "
            f"{_or_dash(c.acceptance_length)} |"
            for label, c in corners.items()
        ),
        "",
        "| both | gain of both | if independent | if savings add | both / independent | cause |",
        "|---|---|---|---|---|---|",
        *(
            f"| {r.both.label} | {_figure(r.both.gain)} | {r.expected_gain:.2f} | {_or_dash(r.additive_gain)} | "
            f"{_figure(r.difference)} | {', '.join(r.causes) or '-'} |"
            for r in e.interactions
        ),
        "",
        "| configuration | cached | ideal | KV block | blocks lost per request |",
        "|---|---|---|---|---|",
        *(
            f"| {r.label} | {r.cached_tokens:,.0f} | {r.ideal_tokens:,.0f} | {r.kv_block_tokens} | "
            f"{_or_dash(r.lost_blocks_per_request)} |"
            for r in e.cache_use
        ),
        "",
    ]
    return [*lines, *_findings(e)]


def _temperature(e: Explanation) -> list[str]:
    rows = sorted(e.acceptance, key=lambda row: row.temperature or 0)
    return [
        "## Acceptance over temperature, code, concurrency 4",
        "",
        "| temperature | configuration | rate | length | p_1 ... p_K |",
        "|---|---|---|---|---|",
        *(
            f"| {r.temperature:g} | {r.label} | {r.rate.value:.1%} | {_figure(r.length)} | "
            f"{' '.join(f'{p:.2f}' for p in r.curve)} |"
            for r in rows
        ),
        "",
        *_findings(e),
    ]


def _load(e: Explanation) -> list[str]:
    lines = ["## Load curve, code, greedy", ""]
    for curve in e.load_curves:
        loads = [point.concurrency for point in curve.series[0].points]
        lines += [
            f"| tok/s at concurrency | {' | '.join(f'{load:g}' for load in loads)} | saturated from |",
            "|---|" + "---|" * (len(loads) + 1),
            *(
                f"| {s.label} | {' | '.join(f'{p.output_tok_s.value:.0f}' for p in s.points)} | {s.saturation or '-'} |"
                for s in curve.series
            ),
            "",
            f"Speculation wins {curve.speculation_wins}"
            + (f" {curve.crossover:.1f} requests in flight." if curve.crossover else "."),
            "",
        ]
    lines += [
        "| requests in flight | K implied by the longest curve | K measured best |",
        "|---|---|---|",
        *(
            f"| {r.concurrency or 0:.1f} | {r.implied_k} ({r.predicted[r.implied_k]:.2f}x) | {r.best_k} "
            f"({r.measured[r.best_k]:.2f}x) |"
            for r in e.best_lengths
        ),
        "",
    ]
    for model in e.speed:
        draft, verify = model.draft_s, model.verify_s_per_token
        if draft is not None and verify is not None:
            cost = f"draft pass {draft * 1000:.2f} ms, verification {verify * 1e6:.0f} us per added token"
            lines += [f"Speed model: {cost}, root mean square error {model.error or 0:.1%}.", ""]
    return [*lines, *_findings(e)]


def _findings(e: Explanation) -> list[str]:
    """One line a rule, with the last condition's evidence: that of the highest load or temperature."""
    last = {finding.rule: finding for finding in e.findings}
    found = [f"- **{f.title}** ({f.condition}): {f.evidence}. Remedy: {f.remedy}." for f in last.values()]
    return ["What `tune explain` finds:", "", *(found or ["- nothing"]), ""]


def _figure(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:.2f}"
    return f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f})"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
