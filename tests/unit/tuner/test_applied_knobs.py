"""Read-back: only a living setting that the engine reports otherwise counts as changed, whatever reports it."""

from typing import Any

import pytest

from search_spaces import Scalar, ServeConfig, load_space
from tuner.readback import Readings, read_back

KNOBS = load_space("dflash").knobs
INFO: dict[str, Any] = {
    "vllm_config": {
        "cache_config": {"block_size": 640, "enable_prefix_caching": False},
        "scheduler_config": {"max_num_seqs": 256, "max_num_active_seqs": 128, "max_num_batched_tokens": 2048},
        "model_config": {"dtype": "torch.float32", "max_model_len": 2048},
        "speculative_config": {"method": "dflash", "num_speculative_tokens": 7, "disable_eagle_block_drop": False},
    }
}


def changes(
    asked: dict[str, Scalar],
    *,
    info: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    log: str = "",
    fixed: dict[str, Any] | None = None,
) -> dict[str, Scalar]:
    config = ServeConfig(model="m", values=asked, fixed_args=fixed or {}, tuned_args={}, identity={})
    return read_back(config, asked, KNOBS, Readings(info or {}, labels or {}, log))


def test_a_knob_that_the_engine_changed_is_named_with_its_effective_value() -> None:
    asked: dict[str, Scalar] = {
        "method": "dflash",
        "num_speculative_tokens": 7,
        "kv_block_size": 32,
        "prefix_caching": False,
        "max_num_batched_tokens": 2048,
    }
    assert changes(asked, info=INFO) == {"kv_block_size": 640, "max_num_active_seqs": 128}


def test_what_the_engine_does_not_report_is_no_difference() -> None:
    assert changes({"method": "dflash", "max_num_seqs": 16}) == {}


def test_an_engine_that_was_to_speculate_and_does_not_is_named() -> None:
    info = {"vllm_config": {"speculative_config": None}}
    assert changes({"method": "dflash"}, info=info) == {"method": "none"}


def test_settings_of_every_launch_are_compared_too() -> None:
    fixed = {"dtype": "float32", "max-model-len": 4096, "gpu-memory-utilization": "0.90", "seed": 3}
    assert changes({"max_num_seqs": 256}, info=INFO, fixed=fixed) == {"max-model-len": 2048, "max_num_active_seqs": 128}


@pytest.mark.parametrize(
    ("line", "asked", "expected"),
    [
        (
            "INFO [core.py:288] Disabling prefix caching: model has non-causal attention layers.",
            {"prefix_caching": True},
            {"prefix_caching": False},
        ),
        (
            "INFO [interface.py:924] Setting attention block size to 784 tokens to ensure attention page size >= x",
            {"kv_block_size": 16},
            {"kv_block_size": 784},
        ),
        (
            "WARNING [vllm.py:1051] Overriding cudagraph_mode from FULL_AND_PIECEWISE to PIECEWISE for reliability.",
            {},
            {"cudagraph_mode": "PIECEWISE"},
        ),
        (
            "WARNING CUDAGraphMode.FULL is not supported with X backend; setting cudagraph_mode=FULL_AND_PIECEWISE",
            {},
            {"cudagraph_mode": "FULL_AND_PIECEWISE"},
        ),
        ("INFO [cache.py:1] prefix caching is fine", {"prefix_caching": True}, {}),
    ],
)
def test_the_log_outranks_what_the_server_says(
    line: str, asked: dict[str, Scalar], expected: dict[str, Scalar]
) -> None:
    info = {"vllm_config": {"cache_config": {"block_size": 16, "enable_prefix_caching": True}}}
    assert changes(asked, info=info, log=f"all is well\n{line}\n") == expected


def test_the_metrics_outrank_the_server_info() -> None:
    info = {"vllm_config": {"cache_config": {"block_size": 16}}}
    assert changes({"kv_block_size": 16}, info=info, labels={"block_size": "32"}) == {"kv_block_size": 32}
    assert changes({"kv_block_size": 16}, info=info, labels={"block_size": "None"}) == {}


@pytest.mark.parametrize(
    ("asked", "reported", "same"),
    [
        ({"max-model-len": "32k"}, 32000, True),
        ({"max-model-len": "32K"}, 32768, True),
        ({"max-model-len": "32k"}, 32768, False),
        ({"dtype": "half"}, "torch.float16", True),
        ({"dtype": "float"}, "torch.float32", True),
        ({"dtype": "half"}, "torch.bfloat16", False),
    ],
)
def test_two_spellings_of_a_value_are_no_difference(asked: dict[str, Any], reported: object, *, same: bool) -> None:
    (flag,) = asked
    info = {"vllm_config": {"model_config": {flag.replace("-", "_"): reported}}}
    assert (changes({}, info=info, fixed=asked) == {}) is same
