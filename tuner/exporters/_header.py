"""The comment that every export begins with: what it is, how sure, and where it comes from."""

from tuner.records import Provenance, Recommendation


def header(recommendation: Recommendation, provenance: Provenance) -> list[str]:
    """Lines without comment signs."""
    effect = recommendation.effect
    gain = (
        f"{effect.gain:.2f}x ({effect.confidence:.0%} interval {effect.low:.2f} to {effect.high:.2f}) over: "
        f"{recommendation.baseline.label()}"
        if effect
        else "this is the baseline: nothing measured was reliably better"
    )
    lines = [
        f"dflash-tuner {provenance.tuner_version}, {provenance.created_at}",
        f"{recommendation.condition}: {recommendation.verdict}",
        f"{recommendation.objective}: {gain}",
        f"measured on vLLM {provenance.engine_version}, {', '.join(provenance.gpus) or provenance.cpu}",
        f"workload {provenance.workload_digest}, trials {', '.join(map(str, recommendation.trials))}",
    ]
    if recommendation.simulated:
        lines.insert(0, "SIMULATED: derived from the simulated engine, not from a measurement")
    lines += [f"caveat: {caveat}" for caveat in recommendation.caveats]
    return [one_line(line) for line in lines]


def one_line(text: str) -> str:
    """The text without anything that could end a comment."""
    return "".join(c if c.isprintable() else " " for c in text)
