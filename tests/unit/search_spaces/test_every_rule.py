"""Every rule refuses a configuration that cannot work, says why, and allows its nearest neighbour."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from search_spaces import Facts, Gpu
from search_spaces.geometry import Geometry, geometry_of
from search_spaces.rules import RULES, refusal
from tests.unit.search_spaces.conftest import release
from tests.unit.search_spaces.test_kv_blocks import QWEN_27B

GIB = 2**30
HOPPER, ADA, BLACKWELL = (9, 0), (8, 9), (10, 0)


def gpus(count: int, gib: float, capability: tuple[int, int] | None = None) -> tuple[Gpu, ...]:
    return (Gpu("test", int(gib * GIB), capability),) * count


def dense(**changes: Any) -> Geometry:
    """Qwen3-8B: 36 layers, 32 heads of 128 over 8 KV heads: 144 KiB of KV cache a token; 15.3 GiB of weights."""
    shape = Geometry(
        layers=36,
        full_layers=36,
        query_heads=32,
        kv_heads=8,
        head_dim=128,
        max_model_len=40960,
        weight_bytes=int(15.3 * GIB),
    )
    return shape.model_copy(update=changes)


def hybrid(**changes: Any) -> Geometry:
    return geometry_of(QWEN_27B).model_copy(update=changes)


@dataclass(frozen=True)
class Case:
    """One refusal and the nearest configuration that is allowed, with what the facts must be."""

    rule: str
    refused: Mapping[str, Any]
    allowed: Mapping[str, Any]
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)
    draft: Mapping[str, Any] | None = field(default_factory=dict)
    version: str = "0.32"


def dflash(k: int, **values: Any) -> dict[str, Any]:
    return {"method": "dflash", "num_speculative_tokens": k, **values}


SMALL = {"max_num_seqs": 4}
CASES = (
    Case("method_exists", {"method": "ngrm"}, {"method": "ngram"}, "has no speculative method 'ngrm'"),
    Case("method_exists", {"method": "medusa"}, {"method": "ngram"}, "0.33 has no speculative method", version="0.33"),
    Case("method_has_what_it_needs", dflash(3), {"method": "none"}, "give --draft", draft=None),
    Case("method_has_what_it_needs", {"method": "eagle3"}, dflash(3), "makes it a draft for dflash"),
    Case("method_has_what_it_needs", {"method": "mtp"}, {"method": "ngram"}, "needs prediction layers"),
    Case(
        "outputs_are_honest",
        dflash(3, rejection_sample_method="synthetic"),
        dflash(3, rejection_sample_method="block"),
        "fake or change the output",
    ),
    Case("outputs_are_honest", dflash(3, fly_entropy=1), dflash(3), "fly_entropy must not be set"),
    Case(
        "runner_exists",
        dflash(3, **SMALL),
        {"method": "ngram"},
        "does not run on a CPU",
        facts={"device": "cpu"},
        draft={"architectures": ("DFlash2DraftModel",)},
    ),
    Case("draft_block_holds_k", dflash(16, **SMALL), dflash(15, **SMALL), "draft block of 16 allows at most 15"),
    Case(
        "draft_block_holds_k",
        {**dflash(9, **SMALL), "method": "dspark"},
        {**dflash(8, **SMALL), "method": "dspark"},
        "draft block of 8 allows at most 8",
        draft={"architectures": ("Qwen3DSparkModel",), "draft_block": 8, "samples_from_anchor": True},
    ),
    Case(
        "token_budget_holds_drafts",
        dflash(15, max_num_seqs=129),
        dflash(15, max_num_seqs=128),
        "= 2064 exceeds max_num_batched_tokens=2048",
    ),
    Case(
        "lookup_range_is_a_range",
        {"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 3},
        {"method": "ngram", "prompt_lookup_min": 3, "prompt_lookup_max": 3},
        "prompt_lookup_min=5 is above",
    ),
    Case(
        "prediction_layers_divide_k",
        {"method": "mtp", "num_speculative_tokens": 3},
        {"method": "mtp", "num_speculative_tokens": 4},
        "not a multiple of the model's 2 prediction layers",
        target={"n_predict": 2},
    ),
    Case(
        "schedule_speculates",
        dflash(3, num_speculative_tokens_per_batch_size="1-8:15,9-32:3", **SMALL),
        dflash(4, num_speculative_tokens_per_batch_size="1-8:15,9-32:3", **SMALL),
        "changes nothing at num_speculative_tokens=3",
    ),
    Case(
        "schedule_speculates",
        dflash(4, num_speculative_tokens_per_batch_size="1-8:3", data_parallel_size=2, **SMALL),
        dflash(4, num_speculative_tokens_per_batch_size="1-8:3", data_parallel_size=1, **SMALL),
        "does nothing with --data-parallel-size",
    ),
    Case(
        "scheduling_fits_method",
        {"method": "ngram", "async_scheduling": True},
        dflash(3, async_scheduling=True, **SMALL),
        "does not work with method=ngram",
    ),
    Case(
        "greedy_reduction_is_greedy",
        dflash(3, use_local_argmax_reduction=True, draft_sample_method="probabilistic", **SMALL),
        dflash(3, use_local_argmax_reduction=True, draft_sample_method="greedy", **SMALL),
        "does not work with draft_sample_method=probabilistic",
    ),
    Case(
        "backend_takes_kv_dtype",
        {"attention_backend": "FLASH_ATTN", "kv_cache_dtype": "fp8"},
        {"attention_backend": "FLASHINFER", "kv_cache_dtype": "fp8"},
        "on compute capability 8.9 (needs 9.x or 10.x)",
        facts={"gpus": gpus(1, 24, ADA)},
    ),
    Case(
        "backend_takes_kv_dtype",
        {"attention_backend": "FLASH_ATTN", "kv_cache_dtype": "fp8_e5m2"},
        {"attention_backend": "FLASH_ATTN", "kv_cache_dtype": "fp8_e4m3"},
        "FLASHINFER, TRITON_ATTN has",
        facts={"gpus": gpus(1, 80, HOPPER)},
    ),
    Case(
        "backend_takes_kv_dtype",
        {"attention_backend": "FLEX_ATTENTION", "kv_cache_dtype": "fp8"},
        {"attention_backend": "FLEX_ATTENTION", "kv_cache_dtype": "auto"},
        "has no kernels for kv_cache_dtype=fp8",
        facts={"gpus": gpus(1, 80, BLACKWELL)},
    ),
    Case(
        "backend_runs_on_gpu",
        {"attention_backend": "FLASHINFER"},
        {"attention_backend": "TRITON_ATTN"},
        "needs compute capability 8.0; the GPU has 7.5",
        facts={"gpus": gpus(1, 24, (7, 5))},
    ),
    Case(
        "backend_takes_head_size",
        {"attention_backend": "FLASHINFER"},
        {"attention_backend": "FLASH_ATTN"},
        "no kernels for heads of 96",
        facts={"target_geometry": dense(head_dim=96)},
    ),
    Case(
        "backend_sees_a_whole_block",
        dflash(3, attention_backend="FLASH_ATTN_DIFFKV", **SMALL),
        {"attention_backend": "FLASH_ATTN_DIFFKV"},
        "a dflash draft needs one that is not",
    ),
    Case("kv_block_size_is_aligned", {"kv_block_size": 24}, {"kv_block_size": 32}, "not a multiple of 16"),
    Case(
        "hybrid_block_is_what_it_says",
        {"kv_block_size": 16},
        {"kv_block_size": 128},
        "KV block is 784 tokens with and without it",
        facts={"target_geometry": hybrid()},
    ),
    Case(
        "recurrent_cache_is_cached",
        {"chunked_prefill": False},
        {"chunked_prefill": False, "prefix_caching": False},
        "does not work with prefix caching",
        facts={"target_geometry": hybrid()},
    ),
    Case(
        "budget_holds_one_step",
        {"max_num_seqs": 65, "max_num_batched_tokens": 64},
        {"max_num_seqs": 64, "max_num_batched_tokens": 64},
        "less than max_num_seqs=65",
    ),
    Case(
        "whole_prompts_fit_the_budget",
        {"chunked_prefill": False, "max_num_batched_tokens": 8192},
        {"chunked_prefill": False},  # then vLLM takes max_model_len as the budget
        "at least max_model_len=40960",
    ),
    Case(
        "prefill_threshold_is_below_the_longest",
        {"long_prefill_token_threshold": 1024, "max_model_len": 512},
        {"long_prefill_token_threshold": 512, "max_model_len": 1024},
        "is above max_model_len=512",
    ),
    Case(
        "prefill_threshold_changes_a_step",
        {"long_prefill_token_threshold": 2048},
        {"long_prefill_token_threshold": 2048, "performance_mode": "throughput"},
        "a step takes 2048 tokens at most",
    ),
    Case(
        "graphs_are_not_switched_off",
        {"enforce_eager": True, "cudagraph_mode": "PIECEWISE"},
        {"enforce_eager": True},
        "--enforce-eager captures no CUDA graphs",
    ),
    Case(
        "capture_sizes_are_given_once",
        {"cudagraph_capture_sizes": "1,2,4", "max_cudagraph_capture_size": 8},
        {"cudagraph_capture_sizes": "1,2,4", "max_cudagraph_capture_size": 4},
        "contradicts cudagraph_capture_sizes=1,2,4",
    ),
    Case(
        "gpus_are_enough",
        {"tensor_parallel_size": 8},
        {"tensor_parallel_size": 4},
        "needs 8 GPUs; an engine may use 4",
        facts={"gpus": gpus(4, 80)},
    ),
    Case(
        "heads_divide",
        {"tensor_parallel_size": 3},
        {"tensor_parallel_size": 2},
        "does not divide the model's 32 attention heads",
        facts={"gpus": gpus(4, 80)},
    ),
    Case(
        "heads_divide",
        dflash(3, tensor_parallel_size=4, **SMALL),
        dflash(3, tensor_parallel_size=4, draft_tensor_parallel_size=1, **SMALL),
        "does not divide the draft's 6 attention heads",
        facts={"gpus": gpus(4, 80), "draft_geometry": Geometry(query_heads=6, kv_heads=2)},
    ),
    Case(
        "heads_divide",
        {"tensor_parallel_size": 6},
        {"tensor_parallel_size": 4},
        "6 neither divides the model's 4 KV heads nor is a multiple",
        facts={"gpus": gpus(8, 80), "target_geometry": dense(query_heads=24, kv_heads=4)},
    ),
    Case(
        "weights_fit",
        {"tensor_parallel_size": 1, "max_model_len": 1024},
        {"tensor_parallel_size": 2, "max_model_len": 1024},
        "weights of 49.1 GiB on each GPU exceed the 44.2 GiB",
        facts={"gpus": gpus(2, 48), "target_geometry": dense(weight_bytes=int(51.7 * GIB))},
    ),
    Case(
        "weights_fit",
        {"kv_cache_memory_bytes": 10 * GIB},
        {"kv_cache_memory_bytes": 8 * GIB},
        "exceed the GPU's 24.0 GiB",
        facts={"gpus": gpus(1, 24)},
    ),
    Case(
        # 40,960 tokens of 144 KiB are 5.6 GiB; 24 GiB x 0.92 - 15.3 GiB x 0.95 leave 7.5, at 0.8 they leave 4.7.
        "one_request_fits",
        {"gpu_memory_utilization": 0.8},
        {"gpu_memory_utilization": 0.92},
        "one request of max_model_len=40960 needs 5.6 GiB",
        facts={"gpus": gpus(1, 24)},
    ),
    Case(
        # The states of 48 layers: 147 MiB each sequence and copy, 2 + K copies.
        "one_request_fits",
        dflash(15, max_model_len=2048, **SMALL),
        dflash(7, max_model_len=2048, **SMALL),
        "of KV cache on each GPU",
        facts={"gpus": gpus(1, 24), "target_geometry": hybrid(weight_bytes=21 * GIB)},
    ),
)


def facts_of(case: Case, facts: Facts) -> Facts:
    assert facts.draft is not None
    known = replace(
        facts,
        device="gpu",
        release=release(case.version),
        target=facts.target.model_copy(update=dict(case.target)),
        draft=None if case.draft is None else facts.draft.model_copy(update=dict(case.draft)),
        target_geometry=dense(),
    )
    return replace(known, **dict(case.facts))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.reason[:40]}")
def test_a_rule_refuses_the_impossible_and_allows_its_neighbour(case: Case, facts: Facts) -> None:
    known = facts_of(case, facts)
    (rule,) = [rule for rule in RULES if rule.__name__ == case.rule]
    assert case.reason in (rule(case.refused, known) or "allowed")
    assert refusal(case.allowed, known) is None


def test_every_rule_has_a_case() -> None:
    assert [rule.__name__ for rule in RULES if rule.__name__ not in {case.rule for case in CASES}] == []


def test_rules_without_facts_refuse_nothing_about_them(facts: Facts) -> None:
    unknown = replace(facts, device="gpu", target_geometry=None, gpus=())
    settings = {
        "tensor_parallel_size": 3,
        "attention_backend": "FLASH_ATTN",
        "kv_cache_dtype": "fp8",
        "kv_block_size": 16,
        "max_model_len": "auto",
    }
    assert refusal(settings, unknown) is None


@pytest.mark.parametrize("setting", [{"quantization": "fp8"}, {"cpu_offload_gb": 8}, {"kv_cache_dtype": "nvfp4"}])
def test_memory_is_not_judged_where_the_files_do_not_say_it(facts: Facts, setting: dict[str, Any]) -> None:
    case = next(case for case in CASES if case.rule == "weights_fit")
    known = facts_of(case, facts)
    assert refusal(case.refused, known) is not None
    assert refusal({**case.refused, **setting}, known) is None
