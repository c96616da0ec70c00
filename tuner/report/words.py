"""The report in words: its first sentence, what to do, and where the figures are from."""

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.explain.records import Finding
from tuner.report.material import Material
from tuner.report.quantities import gain, interval


@dataclass(frozen=True, slots=True)
class Advice:
    """One rule that fired, under all conditions where it fired with the same remedy."""

    title: str
    remedy: str
    rule: str
    findings: tuple[Finding, ...]


def advice(material: Material) -> list[Advice]:
    """What to do, one entry for each remedy instead of one for each condition."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in material.explanation.findings:
        groups.setdefault((finding.title, finding.remedy, finding.rule), []).append(finding)
    return [Advice(title, remedy, rule, tuple(found)) for (title, remedy, rule), found in groups.items()]


def headline(material: Material) -> str:
    """The whole answer in a sentence or two."""
    answers = material.answers
    if not answers:
        return f"Not finished: {len(material.records)} trials so far. Nothing below is confirmed."
    changes = [answer for answer in answers if answer.verdict == "change" and answer.effect]
    if not changes:
        return "Keep what you have: no configuration that was tried is reliably better than the baseline."
    best = max(changes, key=lambda answer: answer.effect.gain if answer.effect else 0)
    assert best.effect is not None  # noqa: S101 - chosen so above
    figures = f"{gain(best.effect.gain)} the baseline (interval {interval(best.effect.low, best.effect.high)})"
    if len(answers) == 1:
        return f"Change to {best.serve_config.label()}: {figures}."
    where = "all" if len(changes) == len(answers) else f"{len(changes)} of"
    most = f"Most is gained for {best.condition}: {figures}."
    return f"Change the configuration in {where} {len(answers)} conditions. {most}"


def origin(material: Material) -> list[tuple[str, str]]:
    """Where the figures come from, by name."""
    config, found = material.config, list(_origin(material))
    slos = ", ".join(config.slo) or "none"
    launches = len(material.records)
    return [
        ("workload", config.workload.name),
        ("model", config.model),
        ("draft", config.draft or "none"),
        *found,
        ("objective", f"{config.objective}; SLO: {slos}"),
        ("load", config.load),
        ("temperature", config.temperature),
        ("launches", f"{launches}, {sum(sum(r.seconds.values()) for r in material.records) / 60:.0f} minutes"),
    ]


def _origin(material: Material) -> Iterator[tuple[str, str]]:
    known = material.provenance
    if known is not None:
        yield "hardware", ", ".join(known.gpus) or known.cpu
        yield "host", f"{known.host}, {known.memory_gib:.0f} GiB"
        yield "began", known.created_at
        yield "dflash-tuner", known.tuner_version
        yield "workload digest", known.workload_digest
    yield "engine", f"vLLM {material.explanation.engine_version}"
