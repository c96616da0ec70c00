"""Only a living knob that the engine reports otherwise counts as not applied."""

from search_spaces import Scalar
from tuner.trial import _differences

INFO = {
    "vllm_config": {
        "cache_config": {"block_size": 640, "enable_prefix_caching": False},
        "speculative_config": {"method": "dflash", "num_speculative_tokens": 7, "disable_eagle_block_drop": False},
    }
}


def test_a_knob_that_the_engine_changed_is_named_with_its_effective_value() -> None:
    asked: dict[str, Scalar] = {
        "method": "dflash",
        "num_speculative_tokens": 7,
        "kv_block_size": 32,
        "prefix_caching": False,
    }
    assert _differences(asked, INFO) == {"kv_block_size": "640"}


def test_prefix_caching_that_was_switched_off_silently_is_named() -> None:
    assert _differences({"prefix_caching": True}, INFO) == {"prefix_caching": "False"}


def test_what_the_engine_does_not_report_is_no_difference() -> None:
    assert _differences({"method": "dflash", "max_num_seqs": 16}, INFO) == {}
