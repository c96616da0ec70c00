"""Every rule refuses the impossible with its reason and allows the nearest possible."""

from dataclasses import replace
from typing import Any

import pytest

from search_spaces import Device, Facts, load_release
from search_spaces.rules import RULES, refusal


def known(facts: Facts, *, device: Device = "cpu", version: str = "0.32", **draft: Any) -> Facts:
    assert facts.draft is not None
    return replace(facts, device=device, release=load_release(version)[0], draft=facts.draft.model_copy(update=draft))


def dflash(k: int, **values: Any) -> dict[str, Any]:
    return {"method": "dflash", "num_speculative_tokens": k, **values}


@pytest.mark.parametrize(
    ("refused", "allowed", "reason"),
    [
        ({"method": "ngrm"}, {"method": "ngram"}, "has no speculative method 'ngrm'"),
        (dflash(16, max_num_seqs=1), dflash(15, max_num_seqs=1), "draft block of 16 allows at most 15"),
        (dflash(15, max_num_seqs=129), dflash(15, max_num_seqs=128), "= 2064 exceeds max_num_batched_tokens=2048"),
        (
            dflash(7, max_num_seqs=64, max_num_batched_tokens=511),
            dflash(7, max_num_seqs=64, max_num_batched_tokens=512),
            "= 512 exceeds max_num_batched_tokens=511",
        ),
        ({"kv_block_size": 16}, {"kv_block_size": 32}, "kv_block_size=16 is not a multiple of 32"),
        (
            {"max_num_seqs": 65, "max_num_batched_tokens": 64},
            {"max_num_seqs": 64, "max_num_batched_tokens": 64},
            "max_num_batched_tokens=64 is less than max_num_seqs=65",
        ),
    ],
)
def test_a_rule_refuses_the_impossible_and_allows_its_neighbour(
    facts: Facts, refused: dict[str, Any], allowed: dict[str, Any], reason: str
) -> None:
    assert reason in (refusal(refused, known(facts)) or "allowed")
    assert refusal(allowed, known(facts)) is None


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
