"""Whether a configuration changed what the model says.

Greedy outputs of the same requests are compared with those of the baseline engine. Temperature 0 is not bit-identical
between launches (vllm#7627), so the baseline is also compared with itself over rounds, and a candidate may differ as
often as the baseline differs from itself, within sampling error.
"""

import math
from collections.abc import Mapping, Sequence

from tuner.records import OutputCheck

Outputs = Mapping[str, str]


def check_outputs(candidate: Sequence[Outputs], baseline: Sequence[Outputs]) -> OutputCheck:
    """Compares hashes of greedy outputs by request id.

    Args:
        candidate: one mapping of request id to output hash per round.
        baseline: the same of the baseline; its first round is the reference.
    """
    reference = baseline[0] if baseline else {}
    compared, identical = _agreement(reference, candidate)
    repeats, same = _agreement(reference, baseline[1:])
    share = same / repeats if repeats else None
    if compared == 0:
        verdict = "not comparable"
    elif identical == compared:
        verdict = "identical"
    elif share is not None and _plausible(compared - identical, compared, 1 - share):
        verdict = "within calibration"
    else:
        verdict = "changed"
    return OutputCheck.model_validate(
        {"compared": compared, "identical": identical, "calibration_identical": share, "verdict": verdict}
    )


def _agreement(reference: Outputs, rounds: Sequence[Outputs]) -> tuple[int, int]:
    pairs = [(reference[name], output) for one in rounds for name, output in one.items() if name in reference]
    return len(pairs), sum(ours == theirs for ours, theirs in pairs)


def _plausible(different: int, compared: int, rate: float) -> bool:
    """Whether so many differences may come from the calibrated rate: two standard errors above it, at least one."""
    return different <= compared * rate + max(1.0, 2 * math.sqrt(compared * rate * (1 - rate))) if rate > 0 else False
