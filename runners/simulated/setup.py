"""From flags and calibration to what the engine will do, or to the reason why it refuses to start.

Checks come in vLLM's order and words: model, speculative configuration (keys by release, K, the draft's config.json),
scheduler limits, memory. The result says what is *effective*: a KV block size that the target forces, the block drop by
release, the sequence limit that 0.33 lowers under a block drafter.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.simulated.acceptance import Speculation
from runners.simulated.calibration import Calibration
from runners.simulated.errors import StartupError
from runners.simulated.flags import ServeFlags
from runners.simulated.memory import MemoryPlan, MemoryRequest, plan_memory
from runners.simulated.scheduler import Limits

__all__ = ["RULE_NAMES", "EngineSetup", "resolve", "rule_values"]

RULE_NAMES = ("block_size", "enable_prefix_caching", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "num_speculative_tokens")  # fmt: skip
METHODS = ("dflash", "draft_model", "dspark", "eagle", "eagle3", "mtp", "ngram", "ngram_gpu", "suffix")
REMOVED_IN_33 = ("medusa", "mlp_speculator")
STATE_METHODS = ("dflash", "dspark", "eagle", "eagle3", "mtp")
"""Methods that draft from the target's hidden states: vLLM's use_eagle()."""
KEYS = frozenset({
    "attention_backend", "disable_padded_drafter_batch", "draft_load_config", "draft_sample_method", "draft_tensor_parallel_size",
    "enforce_eager", "kv_cache_dtype", "max_model_len", "method", "model", "moe_backend", "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size", "parallel_drafting", "prompt_lookup_max", "prompt_lookup_min", "quantization",
    "rejection_sample_method", "revision", "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor",
    "suffix_decoding_max_tree_depth", "suffix_decoding_min_token_prob", "use_local_argmax_reduction",
})  # fmt: skip
KEYS_SINCE = {
    "disable_eagle_block_drop": (0, 30),
    "disable_lookahead_block_hashes": (0, 33),
    "draft_lm_head_quantization": (0, 33),
}


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """Everything that is fixed at start."""

    flags: ServeFlags
    calibration: Calibration
    max_model_len: int
    block_tokens: int
    memory: MemoryPlan
    limits: Limits
    speculation: Speculation | None
    drop_last_block: bool
    graph_tokens: int | None
    """Largest batch in query tokens that graphs cover; None when every batch is covered or graphs do not matter."""
    max_num_batched_tokens: int
    max_num_seqs: int


def resolve(flags: ServeFlags, calibration: Calibration) -> EngineSetup:
    """Check the configuration and work out its effective values.

    Raises:
        StartupError: with the exception and message that vLLM's log would show.
    """
    model = _model_config(flags.model)
    derived = int(model.get("max_position_embeddings", calibration.max_model_len))
    max_model_len = flags.max_model_len or derived
    if max_model_len > derived:
        raise _value_error(
            f"User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={derived} in model's config.json)."
        )
    release = tuple(int(part) for part in calibration.release.split(".")[:2])
    batched = flags.max_num_batched_tokens or max(calibration.max_num_batched_tokens, flags.max_num_seqs or 0)
    sequences = flags.max_num_seqs or min(calibration.max_num_seqs, batched)
    config = flags.speculative_config
    speculation = None if config is None else _speculation(config, model, calibration, release)
    _check_scheduler(batched, sequences, speculation)
    limits = _limits(flags, config, speculation, batched, sequences, release)
    graph_tokens = _graph_tokens(flags, calibration, sequences, speculation)
    block_tokens = calibration.memory.forced_kv_block_tokens or flags.block_size or calibration.memory.kv_block_tokens
    memory = plan_memory(
        calibration.memory,
        MemoryRequest(
            block_tokens=block_tokens,
            max_model_len=max_model_len,
            max_num_batched_tokens=batched,
            kv_cache_dtype=flags.kv_cache_dtype,
            gpu_memory_utilization=flags.gpu_memory_utilization,
            kv_cache_memory_bytes=flags.kv_cache_memory_bytes,
            blocks_override=flags.num_gpu_blocks_override,
            draft=speculation is not None and speculation.method not in ("ngram", "ngram_gpu", "suffix"),
            graph_tokens=0 if flags.enforce_eager else graph_tokens or 0,
            devices=flags.tensor_parallel_size,
        ),
    )
    return EngineSetup(
        flags=flags,
        calibration=calibration,
        max_model_len=max_model_len,
        block_tokens=block_tokens,
        memory=memory,
        limits=limits,
        speculation=speculation,
        drop_last_block=_drops_last_block(config or {}, speculation, release),
        graph_tokens=0 if flags.enforce_eager else graph_tokens,
        max_num_batched_tokens=batched,
        max_num_seqs=sequences,
    )


def rule_values(setup: EngineSetup) -> dict[str, float]:
    """The values that fault rules may name."""
    return {
        "block_size": setup.block_tokens,
        "enable_prefix_caching": float(setup.flags.enable_prefix_caching),
        "gpu_memory_utilization": setup.flags.gpu_memory_utilization,
        "max_model_len": setup.max_model_len,
        "max_num_batched_tokens": setup.max_num_batched_tokens,
        "max_num_seqs": setup.max_num_seqs,
        "num_speculative_tokens": setup.speculation.draft_tokens if setup.speculation else 0,
    }


def _model_config(model: str) -> Mapping[str, Any]:
    """config.json of a local directory; empty for a name on a hub, which is taken to exist."""
    path = Path(model)
    if path.is_dir():
        file = path / "config.json"
        if not file.is_file():
            raise _value_error(f"Invalid repository ID or local directory specified: '{model}' has no config.json.")
        content: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return content
    if path.is_absolute() or model.startswith(".") or model.count("/") > 1:
        raise _value_error(f"Invalid repository ID or local directory specified: '{model}'.")
    return {}


def _speculation(
    config: Mapping[str, Any], model: Mapping[str, Any], calibration: Calibration, release: tuple[int, ...]
) -> Speculation:
    for key in config:
        if key not in KEYS and release < KEYS_SINCE.get(key, (99,)):
            raise StartupError(
                "pydantic_core._pydantic_core.ValidationError",
                f"1 validation error for SpeculativeConfig\n{key}\n  Unexpected keyword argument "
                f"[type=unexpected_keyword_argument, input_value={config[key]!r}]",
                in_engine=False,
            )
    method = config.get("method") or _guess_method(config)
    if method not in METHODS and not (method in REMOVED_IN_33 and release < (0, 33)):
        raise StartupError(
            "pydantic_core._pydantic_core.ValidationError",
            f"1 validation error for SpeculativeConfig\nmethod\n  Input should be one of {', '.join(METHODS)} "
            f"[type=literal_error, input_value={method!r}]",
            in_engine=False,
        )
    drafts = config.get("num_speculative_tokens")
    if not isinstance(drafts, int) or isinstance(drafts, bool) or drafts <= 0:
        raise _value_error(f"Expected num_speculative_tokens to be greater than zero ({drafts}).")
    draft = _model_config(str(config["model"])) if config.get("model") else {}
    for key in ("hidden_size", "vocab_size"):
        if method in ("dflash", "dspark", "eagle3") and key in draft and key in model and draft[key] != model[key]:
            raise StartupError(
                "RuntimeError",
                f"The draft's {key} ({draft[key]}) must match the target's ({model[key]}): shapes cannot be multiplied.",
            )
    block_size = int(draft.get("block_size", calibration.draft.block_size))
    return Speculation(method, drafts, block_size, config.get("draft_sample_method") == "probabilistic")


def _guess_method(config: Mapping[str, Any]) -> str:
    path = str(config.get("model", "")).lower()
    return next((method for method in ("dflash", "dspark", "eagle3") if method in path), "draft_model")


def _check_scheduler(batched: int, sequences: int, speculation: Speculation | None) -> None:
    if batched < sequences:
        raise _value_error(
            f"max_num_batched_tokens ({batched}) must be greater than or equal to max_num_seqs ({sequences})."
        )
    slots = _draft_slots(speculation)
    if speculation is not None and batched <= slots:
        raise _value_error(
            "VllmConfig does not have enough slots to schedule a token and support the speculative decoding settings. "
            f"Got max_num_batched_tokens={batched} and scheduled_token_delta={slots}."
        )


def _draft_slots(speculation: Speculation | None) -> int:
    """Extra slots per request in the token budget (research notes, 2.3): K for dflash, K - 1 for dspark, 1 for draft_model."""
    if speculation is None:
        return 0
    slots = {"dflash": speculation.draft_tokens, "dspark": speculation.draft_tokens - 1, "draft_model": 1}
    return slots.get(speculation.method, 0)


def _limits(
    flags: ServeFlags,
    config: Mapping[str, Any] | None,
    speculation: Speculation | None,
    batched: int,
    sequences: int,
    release: tuple[int, ...],
) -> Limits:
    drafts = speculation.draft_tokens if speculation else 0
    active = min(sequences, flags.max_num_active_seqs or sequences)
    if speculation is not None and speculation.method in ("dflash", "dspark") and release >= (0, 33):
        active = min(active, max(1, batched // (drafts + 1)))
    schedule = (config or {}).get("num_speculative_tokens_per_batch_size") or ()
    return Limits(
        max_sequences=active,
        max_step_tokens=flags.max_num_scheduled_tokens or batched,
        long_prefill_tokens=flags.long_prefill_token_threshold,
        method=speculation.method if speculation else None,
        draft_tokens=drafts,
        schedule=tuple((int(first), int(last), int(value)) for first, last, value in schedule),
    )


def _graph_tokens(
    flags: ServeFlags, calibration: Calibration, sequences: int, speculation: Speculation | None
) -> int | None:
    if not calibration.costs.graph_max_tokens:
        return None
    per_sequence = 1 + (speculation.draft_tokens if speculation else 0)
    largest = flags.max_cudagraph_capture_size or calibration.costs.graph_max_tokens
    return min(largest, sequences * per_sequence * 2)


def _drops_last_block(config: Mapping[str, Any], speculation: Speculation | None, release: tuple[int, ...]) -> bool:
    """Whether a prefix hit loses its last block: vLLM's rule by release (research notes, 3.2)."""
    if speculation is None or speculation.method not in STATE_METHODS or config.get("disable_eagle_block_drop"):
        return False
    if release < (0, 33):
        return True
    # From 0.33 DFlash and DSpark never drop; EAGLE and MTP hash one token ahead instead, unless told not to.
    return speculation.method not in ("dflash", "dspark") and bool(config.get("disable_lookahead_block_hashes"))


def _value_error(message: str) -> StartupError:
    return StartupError("ValueError", message, in_engine=False)
