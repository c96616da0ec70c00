"""Which configurations start, what is effective, and in which words the others are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from runners.simulated.calibration import Calibration, Costs, Memory
from runners.simulated.errors import StartupError
from runners.simulated.flags import parse_flags
from runners.simulated.setup import EngineSetup, resolve, rule_values

GPU = Memory(
    device_bytes=24 * 2**30,
    weights_bytes=16 * 2**30,
    draft_weights_bytes=2**30,
    kv_bytes_per_token=2**17,
    activation_bytes_per_token=2**18,
    graph_bytes_per_token=0,
)


def setup_of(*flags: str, calibration: Calibration | None = None, model: str = "m", **speculative: Any) -> EngineSetup:
    argv = [model, *flags]
    if speculative:
        argv += ["--speculative-config", json.dumps({"method": "dflash", "num_speculative_tokens": 7, **speculative})]
    return resolve(parse_flags(argv), calibration or Calibration(memory=GPU))


def refusal(*flags: str, **more: Any) -> StartupError:
    with pytest.raises(StartupError) as refused:
        setup_of(*flags, **more)
    return refused.value


def test_kv_cache_is_what_weights_and_activations_leave() -> None:
    setup = setup_of("--max-num-batched-tokens", "2048")
    available = 0.92 * 24 * 2**30 - 16 * 2**30 - 2048 * 2**18
    assert setup.memory.blocks == int(available / (16 * 2**17))


def test_a_draft_takes_memory_and_a_byte_dtype_doubles_the_blocks() -> None:
    plain, drafted = setup_of(), setup_of(method="dflash")
    assert plain.memory.blocks - drafted.memory.blocks == pytest.approx(2**30 / (16 * 2**17), abs=1)
    assert setup_of("--kv-cache-dtype", "fp8").memory.blocks == pytest.approx(2 * plain.memory.blocks, abs=1)
    assert setup_of(method="ngram").memory.blocks == plain.memory.blocks


def test_kv_cache_memory_bytes_and_block_override_replace_the_estimate() -> None:
    assert setup_of("--kv-cache-memory-bytes", str(2**30)).memory.blocks == 2**30 // (16 * 2**17)
    assert setup_of("--num-gpu-blocks-override", "300").memory.blocks == 300


def test_a_cpu_takes_its_cache_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    calibration = Calibration(memory=Memory(device="cpu", kv_bytes_per_token=2**14))
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
    assert setup_of(calibration=calibration).memory.blocks == 2 * 2**30 // (16 * 2**14)


def test_weights_that_do_not_fit_are_out_of_memory() -> None:
    error = refusal(calibration=Calibration(memory=Memory(device_bytes=2**33, weights_bytes=2**34)))
    assert error.exception == "torch.OutOfMemoryError"
    assert "CUDA out of memory" in error.message
    assert error.in_engine


def test_tensor_parallel_size_splits_the_weights() -> None:
    calibration = Calibration(memory=Memory(device_bytes=2**33, weights_bytes=2**33 + 1, activation_bytes_per_token=0))
    assert "out of memory" in refusal(calibration=calibration).message
    assert setup_of("--tensor-parallel-size", "2", calibration=calibration).memory.blocks > 1000


def test_no_room_for_the_cache_and_too_little_of_it_are_told_apart() -> None:
    assert "No available memory for the cache blocks" in refusal("--gpu-memory-utilization", "0.6").message
    error = refusal("--gpu-memory-utilization", "0.68", "--max-num-batched-tokens", "256")
    assert "To serve at least one request with the model's max seq len (4096)" in error.message
    assert "estimated maximum model length is" in error.message


def test_graph_capture_can_run_out_of_memory_and_eager_mode_avoids_it() -> None:
    memory = Memory(
        device_bytes=24 * 2**30, weights_bytes=2**34, graph_bytes_per_token=2**23, activation_bytes_per_token=0
    )
    calibration = Calibration(memory=memory, costs=Costs(graph_max_tokens=512))
    assert "capturing CUDA graphs" in refusal(calibration=calibration).message
    assert setup_of("--max-cudagraph-capture-size", "64", calibration=calibration).graph_tokens == 64
    assert setup_of("--enforce-eager", calibration=calibration).graph_tokens == 0


def test_graphs_cover_twice_the_full_batch_at_most() -> None:
    calibration = Calibration(memory=GPU, costs=Costs(graph_max_tokens=512))
    assert setup_of("--max-num-seqs", "4", calibration=calibration).graph_tokens == 8
    assert setup_of("--max-num-seqs", "4", calibration=calibration, num_speculative_tokens=7).graph_tokens == 64


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--max-model-len", "5000"), "User-specified max_model_len (5000) is greater than the derived max_model_len"),
        (
            ("--max-num-batched-tokens", "8", "--max-num-seqs", "16"),
            "greater than or equal to max_num_seqs (16)",
        ),
    ],
)
def test_impossible_limits_are_refused(flags: tuple[str, ...], words: str) -> None:
    error = refusal(*flags)
    assert error.exception == "ValueError"
    assert words in error.message
    assert not error.in_engine


def test_the_token_budget_must_exceed_the_draft_slots() -> None:
    flags = ("--max-num-batched-tokens", "15", "--max-num-seqs", "1")
    assert "scheduled_token_delta=15" in refusal(*flags, num_speculative_tokens=15).message
    assert setup_of(*flags, num_speculative_tokens=14).limits.draft_tokens == 14


@pytest.mark.parametrize("drafts", [0, -1, None, True, "7"])
def test_a_wrong_number_of_drafts_is_refused(drafts: object) -> None:
    assert "num_speculative_tokens to be greater than zero" in refusal(num_speculative_tokens=drafts).message


@pytest.mark.parametrize(
    ("release", "key", "starts"),
    [
        ("0.29.0", "disable_eagle_block_drop", False),
        ("0.30.0", "disable_eagle_block_drop", True),
        ("0.32.0", "disable_lookahead_block_hashes", False),
        ("0.33.0", "disable_lookahead_block_hashes", True),
        ("0.33.0", "disable_by_batch_size", False),
    ],
)
def test_keys_of_the_speculative_config_depend_on_the_release(release: str, key: str, starts: bool) -> None:
    calibration = Calibration(memory=GPU, release=release)
    given: dict[str, Any] = {key: True}
    if starts:
        assert setup_of(calibration=calibration, **given).speculation is not None
    else:
        error = refusal(calibration=calibration, **given)
        assert error.exception.endswith("ValidationError")
        assert f"SpeculativeConfig\n{key}\n" in error.message


@pytest.mark.parametrize(("release", "method", "drops"), [
    ("0.32.0", "dflash", True), ("0.32.0", "eagle3", True), ("0.32.0", "ngram", False),
    ("0.32.0", "draft_model", False), ("0.33.0", "dflash", False), ("0.33.0", "eagle3", False),
])  # fmt: skip
def test_which_methods_drop_the_last_cached_block(release: str, method: str, drops: bool) -> None:
    setup = setup_of(calibration=Calibration(memory=GPU, release=release), method=method)
    assert setup.drop_last_block == drops


def test_methods_come_and_go_with_releases() -> None:
    assert setup_of(method="medusa").speculation is not None
    assert "method" in refusal(method="medusa", calibration=Calibration(memory=GPU, release="0.33.0")).message
    assert "method" in refusal(method="dflash3").message


def test_release_33_lowers_the_batch_to_what_the_budget_can_verify() -> None:
    flags = ("--max-num-batched-tokens", "2048", "--max-num-seqs", "256")
    newer = Calibration(memory=GPU, release="0.33.0")
    assert setup_of(*flags, num_speculative_tokens=15).limits.max_sequences == 256
    assert setup_of(*flags, num_speculative_tokens=15, calibration=newer).limits.max_sequences == 128


def write_config(folder: Path, **values: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))
    return str(folder)


def test_local_checkpoints_are_read(tmp_path: Path) -> None:
    target = write_config(tmp_path / "target", max_position_embeddings=1024, hidden_size=128, vocab_size=4096)
    draft = write_config(tmp_path / "draft", block_size=8, hidden_size=128, vocab_size=4096)
    config = json.dumps({"method": "dflash", "model": draft, "num_speculative_tokens": 7})
    setup = resolve(parse_flags([target, "--speculative-config", config]), Calibration(memory=GPU))
    assert setup.max_model_len == 1024
    assert setup.speculation is not None
    assert setup.speculation.block_size == 8


def test_a_draft_of_another_width_is_refused(tmp_path: Path) -> None:
    target = write_config(tmp_path / "target", hidden_size=128)
    draft = write_config(tmp_path / "draft", hidden_size=64)
    config = json.dumps({"method": "dflash", "model": draft, "num_speculative_tokens": 7})
    with pytest.raises(StartupError, match=r"hidden_size is 64, the target's 128"):
        resolve(parse_flags([target, "--speculative-config", config]), Calibration(memory=GPU))


def test_paths_that_hold_no_checkpoint_are_refused(tmp_path: Path) -> None:
    assert "Invalid repository ID or local directory" in refusal(model=str(tmp_path / "missing")).message
    assert "has no config.json" in refusal(model=str(tmp_path)).message


def test_rule_values_are_the_effective_ones() -> None:
    values = rule_values(setup_of("--block-size", "32", "--no-enable-prefix-caching", num_speculative_tokens=3))
    assert values["block_size"] == 32
    assert values["enable_prefix_caching"] == 0.0
    assert values["num_speculative_tokens"] == 3
