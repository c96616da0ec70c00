"""What every export says of itself: what it is, how sure, and where it comes from."""

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
        f"workload {provenance.workload_digest}{_origin(provenance)}",
        f"trials {', '.join(map(str, recommendation.trials))}, config {recommendation.serve_config.id}",
    ]
    if recommendation.simulated:
        lines.insert(0, SIMULATED)
    lines += [f"caveat: {caveat}" for caveat in recommendation.caveats]
    return [one_line(line) for line in lines]


def annotations(recommendation: Recommendation, provenance: Provenance) -> dict[str, str]:
    """The same as annotations of a Kubernetes object, which stay with it in the cluster."""
    effect = recommendation.effect
    said = {
        "version": provenance.tuner_version,
        "created-at": provenance.created_at,
        "condition": recommendation.condition,
        "verdict": recommendation.verdict,
        "objective": recommendation.objective,
        "effect": f"{effect.gain:.4g}" if effect else "none: this is the baseline",
        "interval": f"{effect.low:.4g} to {effect.high:.4g} at {effect.confidence:.0%}" if effect else "none",
        "engine": f"vLLM {provenance.engine_version}",
        "hardware": ", ".join(provenance.gpus) or provenance.cpu,
        "workload": provenance.workload_digest,
        "study": provenance.study or "not recorded",
        "run": provenance.run or "not recorded",
        "trials": ", ".join(map(str, recommendation.trials)),
        "config": recommendation.serve_config.id,
    }
    if recommendation.simulated:
        said["simulated"] = SIMULATED
    return {f"dflash-tuner/{name}": one_line(value) for name, value in said.items()}


SIMULATED = "SIMULATED: derived from the simulated engine, not from a measurement"


def one_line(text: str) -> str:
    """The text without anything that could end a comment."""
    return "".join(c if c.isprintable() else " " for c in text)


def _origin(provenance: Provenance) -> str:
    """The study and the run, as far as they are known."""
    return "".join(
        f", {name} {value}" for name, value in (("study", provenance.study), ("run", provenance.run)) if value
    )
