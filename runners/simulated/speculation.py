"""`--speculative-config`: which keys and values a vLLM release accepts, and what follows from them.

Checked as vLLM checks: unknown keys and methods are refused by name, K must be positive, the draft's config.json
must fit the target. K against the trained draft block is not checked, because vLLM does not (vllm#50012):
acceptance suffers instead. Whether a prefix hit loses its last block depends on method and release (vLLM's
`use_eagle_block_drop`, absent for DFlash and DSpark from 0.33).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runners.simulated.acceptance import Speculation
from runners.simulated.calibration import Calibration
from runners.simulated.checkpoints import model_config
from runners.simulated.errors import StartupError, value_error

__all__ = ["SpeculativePlan", "release_of", "speculative_plan"]

METHODS = ("dflash", "draft_model", "dspark", "eagle", "eagle3", "mtp", "ngram", "ngram_gpu", "suffix")
REMOVED_IN_33 = ("medusa", "mlp_speculator")
STATE_METHODS = ("dflash", "dspark", "eagle", "eagle3", "mtp")
"""Methods that draft from the target's hidden states: vLLM's use_eagle()."""
BLOCK_METHODS = ("dflash", "dspark")
KEYS = frozenset({
    "attention_backend", "disable_padded_drafter_batch", "draft_load_config", "draft_sample_method",
    "draft_tensor_parallel_size", "enforce_eager", "kv_cache_dtype", "max_model_len", "method", "model", "moe_backend",
    "num_speculative_tokens", "num_speculative_tokens_per_batch_size", "parallel_drafting", "prompt_lookup_max",
    "prompt_lookup_min", "quantization", "rejection_sample_method", "revision", "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor", "suffix_decoding_max_tree_depth", "suffix_decoding_min_token_prob",
    "use_local_argmax_reduction",
})  # fmt: skip
KEYS_SINCE = {
    "disable_eagle_block_drop": (0, 30),
    "disable_lookahead_block_hashes": (0, 33),
    "draft_lm_head_quantization": (0, 33),
}
_VALIDATION_ERROR = "pydantic_core._pydantic_core.ValidationError"


@dataclass(frozen=True, slots=True)
class SpeculativePlan:
    """What the speculative configuration means for scheduler, cache and memory."""

    speculation: Speculation | None = None
    drop_last_block: bool = False
    schedule: tuple[tuple[int, int, int], ...] = ()
    """num_speculative_tokens_per_batch_size: (first, last, K), batch sizes inclusive."""
    draft_slots: int = 0
    """Extra slots per request in the token budget: vLLM's max_num_new_slots_for_drafting."""

    @property
    def draft_tokens(self) -> int:
        """K, 0 without speculation."""
        return self.speculation.draft_tokens if self.speculation else 0

    @property
    def has_draft_model(self) -> bool:
        """Whether a second model is loaded."""
        return self.speculation is not None and self.speculation.method not in ("ngram", "ngram_gpu", "suffix")

    @property
    def is_block_drafter(self) -> bool:
        """Whether one pass drafts all positions."""
        return self.speculation is not None and self.speculation.method in BLOCK_METHODS


def release_of(calibration: Calibration) -> tuple[int, int]:
    """Major and minor number of the release that the calibration imitates."""
    major, minor = calibration.release.split(".")[:2]
    return int(major), int(minor)


def speculative_plan(
    config: Mapping[str, Any] | None, target: Mapping[str, Any], calibration: Calibration
) -> SpeculativePlan:
    """Check the configuration and work out what it means.

    Args:
        config: the JSON of --speculative-config, or None.
        target: the target's config.json.
        calibration: names the release, and the draft block size when the draft has no config.json.

    Raises:
        StartupError: vLLM of that release would refuse it.
    """
    if config is None:
        return SpeculativePlan()
    release = release_of(calibration)
    _check_keys(config, release)
    method = _method(config, release)
    drafts = config.get("num_speculative_tokens")
    if not isinstance(drafts, int) or isinstance(drafts, bool) or drafts <= 0:
        raise value_error(f"Expected num_speculative_tokens to be greater than zero ({drafts}).")
    draft = model_config(str(config["model"])) if config.get("model") else {}
    _check_shapes(method, draft, target)
    block_size = int(draft.get("block_size", calibration.draft.block_size))
    probabilistic = config.get("draft_sample_method") == "probabilistic"
    schedule = config.get("num_speculative_tokens_per_batch_size") or ()
    return SpeculativePlan(
        speculation=Speculation(method, drafts, block_size, probabilistic),
        drop_last_block=_drops_last_block(config, method, release),
        schedule=tuple((int(first), int(last), int(value)) for first, last, value in schedule),
        draft_slots={"dflash": drafts, "dspark": drafts - 1, "draft_model": 1}.get(method, 0),
    )


def _check_keys(config: Mapping[str, Any], release: tuple[int, int]) -> None:
    for key, value in config.items():
        if key not in KEYS and release < KEYS_SINCE.get(key, (99,)):
            raise StartupError(
                _VALIDATION_ERROR,
                f"1 validation error for SpeculativeConfig\n{key}\n  Unexpected keyword argument "
                f"[type=unexpected_keyword_argument, input_value={value!r}]",
                in_engine=False,
            )


def _method(config: Mapping[str, Any], release: tuple[int, int]) -> str:
    path = str(config.get("model", "")).lower()
    guess = next((method for method in ("dflash", "dspark", "eagle3") if method in path), "draft_model")
    method = str(config.get("method") or guess)
    if method not in METHODS and not (method in REMOVED_IN_33 and release < (0, 33)):
        raise StartupError(
            _VALIDATION_ERROR,
            f"1 validation error for SpeculativeConfig\nmethod\n  Input should be one of {', '.join(METHODS)} "
            f"[type=literal_error, input_value={method!r}]",
            in_engine=False,
        )
    return method


def _check_shapes(method: str, draft: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    if method not in (*BLOCK_METHODS, "eagle3"):
        return
    for key in ("hidden_size", "vocab_size"):
        if key in draft and key in target and draft[key] != target[key]:
            raise StartupError(
                "RuntimeError",
                f"mat1 and mat2 shapes cannot be multiplied: the draft's {key} is {draft[key]}, the target's "
                f"{target[key]}",
            )


def _drops_last_block(config: Mapping[str, Any], method: str, release: tuple[int, int]) -> bool:
    if method not in STATE_METHODS or config.get("disable_eagle_block_drop"):
        return False
    if release < (0, 33):
        return True
    # From 0.33 EAGLE and MTP hash one token ahead instead of dropping, unless told not to.
    return method not in BLOCK_METHODS and bool(config.get("disable_lookahead_block_hashes"))
