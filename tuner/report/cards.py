"""The answer as cards: one for each profile and configuration, with a line for each condition."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

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
class Line:
    """One condition on a card; texts are empty where there is nothing to say."""

    condition: str
    before: str
    after: str
    gain: str
    interval: str
    reason: str


@dataclass(frozen=True, slots=True)
class Card:
    """An answer as a reader takes it in."""

    title: str
    changes: bool
    verdict: str
    configuration: str
    quantity: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    caveats: tuple[str, ...]
    command: str
    yaml: str


def cards(material: Material) -> list[Card]:
    """All answers, those that say the same of one profile together."""
    groups: dict[tuple[str, str, str], list[Recommendation]] = {}
    for answer in material.answers:
        groups.setdefault((answer.profile, answer.verdict, answer.serve_config.id), []).append(answer)
    return [_card(material, answers) for answers in groups.values()]


def _card(material: Material, answers: Sequence[Recommendation]) -> Card:
    first = answers[0]
    lines = tuple(_line(answer) for answer in answers)
    notes = [_outputs(a.output_check) for a in answers if a.output_check is not None and a.verdict == "change"]
    notes += ["the SLO is not met in " + a.condition for a in answers if not a.slo_met]
    words = ["tune", "export", material.config.study, "--out", str(material.config.out), "--profile", first.condition]
    words += ["--format", "sh", *(["--allow-simulated"] if first.simulated else [])]
    return Card(
        title=first.profile if len(answers) > 1 else first.condition,
        changes=first.verdict == "change",
        verdict=VERDICTS[first.verdict],
        configuration=first.serve_config.label(),
        quantity=quantity(first.objective).label,
        lines=lines,
        notes=tuple(dict.fromkeys(notes)),
        caveats=tuple(dict.fromkeys(caveat for a in answers for caveat in a.caveats)),
        command=shlex.join(words),
        yaml=first.serve_config.to_yaml(),
    )


def _line(answer: Recommendation) -> Line:
    shown, effect = quantity(answer.objective), answer.effect if answer.verdict == "change" else None
    return Line(
        condition=answer.condition,
        before=shown.text(answer.baseline_value),
        after=shown.text(answer.value) if effect else "",
        gain=gain(effect.gain) if effect else "",
        interval=interval(effect.low, effect.high) if effect else "",
        reason=answer.reason,
    )


def _outputs(check: OutputCheck) -> str:
    text = OUTPUTS[check.verdict]
    return f"{text}: {check.identical} of {check.compared} greedy outputs identical" if check.compared else text
