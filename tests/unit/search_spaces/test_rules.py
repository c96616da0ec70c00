"""What holds between rules; each rule by itself is in test_every_rule.py."""

from dataclasses import replace
from typing import Any

from search_spaces import Device, Facts
from search_spaces.rules import RULES, refusal
from tests.unit.search_spaces.conftest import release


def known(facts: Facts, *, device: Device = "cpu", version: str = "0.32", **draft: Any) -> Facts:
    assert facts.draft is not None
    return replace(facts, device=device, release=release(version), draft=facts.draft.model_copy(update=draft))


def dflash(k: int, **values: Any) -> dict[str, Any]:
    return {"method": "dflash", "num_speculative_tokens": k, **values}


def test_dflash_without_a_draft_is_refused(facts: Facts) -> None:
    without = replace(facts, draft=None)
    assert "give --draft" in (refusal(dflash(3), without) or "allowed")
    assert refusal({"method": "none"}, without) is None


def test_a_dflash2_head_needs_a_gpu(facts: Facts) -> None:
    second: dict[str, Any] = {"architectures": ("DFlash2DraftModel",)}
    assert "does not run on a CPU" in (refusal(dflash(3, max_num_seqs=8), known(facts, **second)) or "allowed")
    assert refusal(dflash(3, max_num_seqs=8), known(facts, device="gpu", **second)) is None


def test_too_many_draft_tokens_crash_old_releases_and_slow_new_ones(facts: Facts) -> None:
    values = dflash(15, max_num_seqs=256)
    assert "vLLM 0.32 would crash" in (refusal(values, known(facts)) or "allowed")
    assert "vLLM 0.33 would silently run fewer" in (refusal(values, known(facts, version="0.33")) or "allowed")


def test_the_device_decides_the_unit_of_a_kv_block(facts: Facts) -> None:
    assert refusal({"kv_block_size": 16}, known(facts, device="gpu")) is None


def test_a_dead_k_is_not_judged(facts: Facts) -> None:
    assert refusal({"method": "none", "num_speculative_tokens": 99}, known(facts)) is None


def test_the_first_rule_that_refuses_gives_the_reason(facts: Facts) -> None:
    values = dflash(99, kv_block_size=1)
    reasons = [reason for rule in RULES if (reason := rule(values, known(facts)))]
    assert len(reasons) > 1
    assert reasons[0] == refusal(values, known(facts))
