"""Every rule fires where its fault is planted in the simulated engine, and none fires on a clean one."""

import dataclasses
from collections.abc import Callable

import pytest

from runners.simulated.calibration import Calibration, Draft, Memory
from tests.unit.tuner.explain_desk import CLEAN, CORNERS, Try, calibration, explained, fired, study, traffic
from tuner.explain.rules import RULES
from tuner.records import TrialRecord

pytestmark = pytest.mark.slow

OLD = dataclasses.replace(CLEAN, release="0.32.0")
OLDEST = dataclasses.replace(CLEAN, release="0.29.0")
K_LADDER = (Try(), Try(k=3), Try(k=7), Try(k=15))


def with_flags(one: Try, **flags: object) -> Try:
    return dataclasses.replace(one, flags={name.replace("_", "-"): value for name, value in flags.items()})


PLANTED: dict[str, Callable[[], list[TrialRecord]]] = {
    "outputs changed": lambda: study((Try(), Try(caching=False), Try(k=7, wrong=True))),
    "last block dropped": lambda: study(CORNERS, _with_block(OLD, 128)),
    "last block dropped, no flag": lambda: study(CORNERS, _with_block(OLDEST, 128)),
    "hits lost": lambda: _relabelled(study(CORNERS, _with_block(OLD, 128)), "0.33.0+simulated"),
    "acceptance collapses with cache": lambda: study(CORNERS, calibration(kind={"cached_factor": 0.4})),
    "concurrency lowered": lambda: study(
        [with_flags(one, max_num_batched_tokens=128) for one in (Try(), Try(k=15))],
        loads=(16,),
        bodies=traffic(48, shared=0, own=20),
    ),
    "preemptions": lambda: study(
        [with_flags(one, num_gpu_blocks_override=80, max_model_len=1024) for one in (Try(), Try(k=7))],
        loads=(12,),
        bodies=traffic(shared=0, own=60),
    ),
    "requests wait": lambda: study(
        [with_flags(one, max_model_len=1024) for one in (Try(), Try(k=3))],
        dataclasses.replace(CLEAN, memory=Memory(device_bytes=10_750 * 2**20, draft_kv_bytes_per_token=3 * 2**17)),
        loads=(8,),
        bodies=traffic(shared=0, own=700),
    ),
    "graphs do not cover": lambda: study(
        [with_flags(one, max_cudagraph_capture_size=64) for one in (Try(), Try(k=3), Try(k=15))],
        calibration(costs={"graph_max_tokens": 512, "eager_factor": 2.5}),
        loads=(8,),
    ),
    "prompts shorter than a block": lambda: study((Try(), Try(k=7)), _with_block(CLEAN, 1648)),
    "longer drafts accept less": lambda: study(K_LADDER, dataclasses.replace(CLEAN, draft=Draft(block_size=8))),
    "nothing accepted above temperature 0": lambda: study(
        (Try(), Try(k=7)), calibration(kind={"temperature_slope": 0.95}), temperatures=(0.0, 1.0)
    ),
    "acceptance falls with temperature": lambda: study(
        (Try(), Try(k=7)), calibration(kind={"temperature_slope": 0.4}), temperatures=(0.0, 1.0)
    ),
    "acceptance limits": lambda: study(K_LADDER, calibration(kind={"conditional": (0.3,)})),
    "speculation never pays": lambda: study(K_LADDER, calibration(costs={"draft_pass_s": 0.08})),
    "slower above a load": lambda: study(
        K_LADDER, calibration(costs={"verify_curve": ((1, 0.0), (8, 0.002), (64, 0.08), (512, 0.9))}), loads=(1, 4, 16)
    ),
}


def _with_block(engine: Calibration, tokens: int) -> Calibration:
    return dataclasses.replace(engine, memory=Memory(device_bytes=80 * 2**30, forced_kv_block_tokens=tokens))


def _relabelled(records: list[TrialRecord], version: str) -> list[TrialRecord]:
    """An engine that says another release than it behaves like."""
    return [record.model_copy(update={"engine_version": version}) for record in records]


CONSEQUENCES = {
    "preemptions": {"requests wait"},
    "acceptance collapses with cache": {"acceptance limits"},
    "longer drafts accept less": {"acceptance limits"},
    "nothing accepted above temperature 0": {"acceptance limits"},
    "acceptance falls with temperature": {"acceptance limits"},
}


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_rule_fires_where_its_fault_is_planted_and_no_other(rule: str) -> None:
    """Beside it at most what follows from the fault."""
    found = {finding.rule: finding for finding in explained(PLANTED[rule]()).findings}
    assert rule in found
    assert found[rule].evidence
    assert found[rule].trials
    assert set(found) - {rule} <= CONSEQUENCES.get(rule, set())


def test_no_rule_fires_on_a_clean_engine() -> None:
    assert fired(study([*CORNERS, Try(k=15)], loads=(1, 8), temperatures=(0.0, 1.0))) == set()
