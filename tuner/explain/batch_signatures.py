"""Signatures of a batch that suffers from speculation: fewer requests at once, preemptions, graphs, load.

A function looks at one condition and says what it saw, or None. Names and remedies are in `rules.py`.
"""

import math

from tuner.explain.case import Case, Evidence
from tuner.explain.draft_signatures import SHORT_LENGTH
from tuner.explain.observed import Arm
from tuner.explain.records import SpeedPoint

WAITING_SHARE = 0.1
PREEMPTED_SHARE = 0.05
GRAPH_JUMP = 1.25
DEFAULT_CAPTURE_TOKENS = 512
"""vLLM's limit of max_cudagraph_capture_size (vllm/config/vllm.py, 0.28 to 0.33; 1,024 on SM100)."""


def concurrency_lowered(case: Case) -> Evidence | None:
    """Requests wait under speculation because the engine allows fewer sequences at once."""
    for arm in case.speculating:
        limit = _sequence_limit(arm)
        if limit is None or limit >= arm.concurrency or not _waits(arm, case):
            continue
        return Evidence(
            f"{arm.label} runs at most {limit} requests at once ({arm.running:.1f} on average, "
            f"{arm.metrics.get('waiting_mean', 0):.1f} waiting) where {arm.concurrency:.0f} were in flight",
            arm.trials,
        )
    return None


def requests_wait(case: Case) -> Evidence | None:
    """Requests wait under speculation without a limit on sequences: the KV cache holds fewer of them."""
    for arm in case.speculating:
        limit = _sequence_limit(arm)
        if (limit is None or limit >= arm.concurrency) and not _preempted(arm) and _waits(arm, case):
            return Evidence(
                f"in {arm.label} {arm.metrics.get('waiting_mean', 0):.1f} requests wait on average and "
                f"{arm.running:.1f} run, without speculation they do not wait",
                arm.trials,
            )
    return None


def graphs_do_not_cover(case: Case) -> Evidence | None:
    """A step's query tokens exceed what CUDA graphs cover, and the step is slower than smaller ones predict."""
    covered = [p for p in case.speed if _graph_tokens(p, case) is not None and not _exceeds(p, case)]
    for point in case.speed:
        if not _exceeds(point, case):
            continue
        smaller = max((p for p in covered if p.k < point.k), key=lambda p: p.k, default=None)
        if smaller is not None:
            slope = max(0.0, smaller.step_s - smaller.target_step_s) / smaller.k
            expected_s = point.target_step_s + slope * point.k
        else:
            expected_s = point.target_step_s * 1.2
        if point.step_s > GRAPH_JUMP * expected_s:
            limit = _graph_tokens(point, case)
            return Evidence(
                f"a step of K={point.k} has {point.batch * (point.k + 1):.0f} query tokens, graphs cover {limit}: it "
                f"takes {point.step_s * 1000:.1f} ms where {expected_s * 1000:.1f} ms were to be expected",
                (point.trial,),
            )
    return None


def preemptions(case: Case) -> Evidence | None:
    """Requests are thrown out of the KV cache and computed again."""
    hit = [arm for arm in case.arms if _preempted(arm)]
    arm = max(hit, key=lambda arm: arm.metrics["preemptions"], default=None)
    if arm is None:
        return None
    plain = case.plain(arm) if arm.method else None
    beside = f", {plain.metrics.get('preemptions', 0):.0f} without speculation" if plain else ""
    return Evidence(
        f"{arm.metrics['preemptions']:.0f} preemptions in {arm.metrics.get('requests', 0):.0f} requests of "
        f"{arm.label}{beside}",
        arm.trials,
    )


def speculation_never_pays(case: Case) -> Evidence | None:
    """At the lightest load speculation is slower although enough is accepted: its steps cost too much."""
    best = max(case.speed, key=lambda point: point.measured.value, default=None)
    if best is None or not case.is_lightest or best.acceptance_length < SHORT_LENGTH or best.measured.value >= 1:
        return None
    return Evidence(
        f"the best speculation (K={best.k}) runs {best.measured.value:.2f}x as fast: a step takes "
        f"{best.step_s * 1000:.1f} ms instead of {best.target_step_s * 1000:.1f} ms for {best.acceptance_length:.2f} "
        "tokens",
        (best.trial,),
    )


def slower_above_a_load(case: Case) -> Evidence | None:
    """Speculation wins at light load and loses above a crossover."""
    curve = case.curve
    if curve is None or curve.speculation_wins != "below" or curve.crossover is None or not case.is_lightest:
        return None
    trials = {trial for series in curve.series if series.speculates for trial in series.trials}
    return Evidence(
        f"the best speculation is faster below about {curve.crossover:.0f} requests in flight and slower above: "
        "verifying K drafts of every request fills the batch",
        tuple(sorted(trials)),
    )


def _sequence_limit(arm: Arm) -> int | None:
    """Sequences at once: as the engine says, else what its flags say, which 0.33 divides by K + 1."""
    limits = [arm.flags.get("max-num-active-seqs"), arm.flags.get("max-num-seqs")]
    budget = arm.flags.get("max-num-batched-tokens")
    if isinstance(budget, int) and arm.method in ("dflash", "dspark") and not _before_33(arm):
        limits.append(budget // (arm.k + 1))
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    return min(known, default=None)


def _before_33(arm: Arm) -> bool:
    parts = arm.version.split(".")
    return len(parts) > 1 and parts[0] == "0" and parts[1].isdigit() and int(parts[1]) < 33


def _waits(arm: Arm, case: Case) -> bool:
    """Whether requests queue here and do not without speculation."""
    plain = case.plain(arm)
    limit = WAITING_SHARE * arm.concurrency
    waits = arm.metrics.get("waiting_mean", 0.0) > limit
    return waits and plain is not None and plain.metrics.get("waiting_mean", 0.0) <= limit


def _preempted(arm: Arm) -> bool:
    return arm.metrics.get("preemptions", 0.0) > PREEMPTED_SHARE * arm.metrics.get("requests", math.inf)


def _graph_tokens(point: SpeedPoint, case: Case) -> int | None:
    """Query tokens that graphs cover; None where there are none (eager, CPU)."""
    arm = next(arm for arm in case.arms if point.trial in arm.trials)
    if arm.flags.get("enforce-eager") is True or arm.version.endswith("+cpu"):
        return None
    size = arm.flags.get("max-cudagraph-capture-size")
    return size if isinstance(size, int) else DEFAULT_CAPTURE_TOKENS


def _exceeds(point: SpeedPoint, case: Case) -> bool:
    limit = _graph_tokens(point, case)
    return limit is not None and point.batch * (point.k + 1) > limit
