"""The answer in words: the first sentence of the report, a card for each condition, and where the figures are from."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.explain.records import Finding
from tuner.records import OutputCheck, Recommendation
from tuner.report.material import Material
from tuner.report.quantities import gain, interval, quantity

VERDICTS = {"change": "Change", "keep": "Keep the baseline", "no reliable gain": "Keep the baseline: no reliable gain"}
OUTPUTS = {
    "identical": "same outputs",
    "within calibration": "outputs differ no more than the baseline's own",
    "changed": "outputs changed",
    "not comparable": "outputs not comparable",
}


@dataclass(frozen=True, slots=True)
class Card:
    """The answer for one condition as a reader takes it in."""

    condition: str
    changes: bool
    verdict: str
    configuration: str
    figures: str
    gain: str
    interval: str
    notes: tuple[str, ...]
    caveats: tuple[str, ...]
    command: str
    yaml: str


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
    where = (
        f"in all {len(answers)} conditions" if len(changes) == len(answers) else f"in {len(changes)} of {len(answers)}"
    )
    if len(answers) == 1:
        where = f"for {best.condition}"
    figures = f"{gain(best.effect.gain)} the baseline (interval {interval(best.effect.low, best.effect.high)})"
    end = f": {figures}." if len(answers) == 1 else f". Most is gained for {best.condition}, {figures}."
    return (
        f"Change the configuration {where}, with {best.serve_config.label()}{end}"
        if len(answers) == 1
        else (f"Change the configuration {where}{end}")
    )


def card(material: Material, answer: Recommendation) -> Card:
    """One condition's answer."""
    shown, effect = quantity(answer.objective), answer.effect
    figures = shown.text(answer.value)
    if answer.verdict == "change":
        figures = f"{shown.text(answer.baseline_value)} before, {figures} after"
    notes = [answer.reason]
    if answer.output_check is not None and answer.verdict == "change":
        notes.append(_outputs(answer.output_check))
    if not answer.slo_met:
        notes.append("the SLO is not met")
    study = material.config.study
    command = [
        "tune",
        "export",
        study,
        "--out",
        str(material.config.out),
        "--profile",
        answer.condition,
        "--format",
        "sh",
    ]
    return Card(
        condition=answer.condition,
        changes=answer.verdict == "change",
        verdict=VERDICTS[answer.verdict],
        configuration=answer.serve_config.label(),
        figures=f"{shown.name}: {figures}",
        gain=gain(effect.gain) if effect else "",
        interval=f"{effect.confidence:.0%} interval {interval(effect.low, effect.high)}" if effect else "",
        notes=tuple(notes),
        caveats=answer.caveats,
        command=shlex.join(command + (["--allow-simulated"] if answer.simulated else [])),
        yaml=answer.serve_config.to_yaml(),
    )


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


def _outputs(check: OutputCheck) -> str:
    text = OUTPUTS[check.verdict]
    return f"{text}: {check.identical} of {check.compared} greedy outputs identical" if check.compared else text
