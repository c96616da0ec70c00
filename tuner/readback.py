"""What a running engine really uses, against what it was asked for.

vLLM changes settings without an error: a hybrid model dictates the KV block size, 0.33 lowers the number of active
sequences under a block drafter, an attention backend switches prefix caching off. Three sources are read, the later
outranking the earlier: /server_info (the API server's view), `vllm:cache_config_info`, and the log of the engine core,
which is the only place where changes made after its start are told. Tables; asks the engine nothing itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces import Knob, Scalar, ServeConfig

# Flag: section and field of /server_info, which are vLLM's own config classes (vllm/config/*.py, 0.28 to 0.33).
_FIELDS: Mapping[str, tuple[str, str]] = {
    "block-size": ("cache_config", "block_size"),
    "enable-prefix-caching": ("cache_config", "enable_prefix_caching"),
    "kv-cache-dtype": ("cache_config", "cache_dtype"),
    "gpu-memory-utilization": ("cache_config", "gpu_memory_utilization"),
    "num-gpu-blocks-override": ("cache_config", "num_gpu_blocks_override"),
    "kv-cache-memory-bytes": ("cache_config", "kv_cache_memory_bytes"),
    "mamba-cache-mode": ("cache_config", "mamba_cache_mode"),
    "max-num-seqs": ("scheduler_config", "max_num_seqs"),
    "max-num-active-seqs": ("scheduler_config", "max_num_active_seqs"),
    "max-num-batched-tokens": ("scheduler_config", "max_num_batched_tokens"),
    "max-num-scheduled-tokens": ("scheduler_config", "max_num_scheduled_tokens"),
    "long-prefill-token-threshold": ("scheduler_config", "long_prefill_token_threshold"),
    "enable-chunked-prefill": ("scheduler_config", "enable_chunked_prefill"),
    "async-scheduling": ("scheduler_config", "async_scheduling"),
    "scheduling-policy": ("scheduler_config", "policy"),
    "max-model-len": ("model_config", "max_model_len"),
    "dtype": ("model_config", "dtype"),
    "enforce-eager": ("model_config", "enforce_eager"),
    "tensor-parallel-size": ("parallel_config", "tensor_parallel_size"),
    "max-cudagraph-capture-size": ("compilation_config", "max_cudagraph_capture_size"),
}
# Labels of vllm:cache_config_info that are strings of the same fields.
_LABELS = {
    "block-size": "block_size",
    "enable-prefix-caching": "enable_prefix_caching",
    "kv-cache-dtype": "cache_dtype",
}
# Flag, what the log says, and the value that it means; None takes the pattern's group.
_LOG: tuple[tuple[str, re.Pattern[str], Scalar], ...] = (
    ("enable-prefix-caching", re.compile(r"Disabling prefix caching"), False),
    ("enable-chunked-prefill", re.compile(r"Disabling chunked prefill"), False),
    (
        "block-size",
        re.compile(r"Setting (?:attention|kv cache) block size to (\d+)"),
        None,
    ),
    (
        "cudagraph-mode",
        re.compile(
            r"(?:[Oo]verriding cudagraph_mode from \S+ to|[Cc]udagraph mode .*?Overriding to|"
            r"Overriding cudagraph_mode to|setting cudagraph_mode=)\s*(?:CUDAGraphMode\.)?([A-Z_]+)"
        ),
        None,
    ),
)
_DTYPES = {"half": "float16", "float": "float32"}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])")
_SUFFIXES = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
# Said even when nobody asked for them, because they decide how fast the engine is.
_NAMES_OF_UNASKED = {
    "max-num-active-seqs": "max_num_active_seqs",
    "cudagraph-mode": "cudagraph_mode",
}


@dataclass(frozen=True, slots=True)
class Readings:
    """What a running engine tells about itself.

    Attributes:
        info: /server_info as JSON; empty when there is none.
        cache_config: Labels of `vllm:cache_config_info`.
        log: What it wrote while it started.
    """

    info: Mapping[str, Any]
    cache_config: Mapping[str, str]
    log: str


def read_back(
    config: ServeConfig, asked: Mapping[str, Scalar], knobs: Mapping[str, Knob], engine: Readings
) -> dict[str, Scalar]:
    """Settings whose effective value is not the one asked for, by the knob's name, or the flag's where it is no knob.

    Args:
        config: how the engine was started.
        asked: knob values that reach the engine.
        knobs: the space's knobs, which say by which flag or speculative key a value travels.
        engine: what it tells.
    """
    flags, speculative = _effective_flags(engine), _speculative(engine.info)
    wanted: dict[str, tuple[Scalar, Scalar]] = {}
    for flag, argument in config.fixed_args.items():
        if isinstance(argument, bool | int | float | str):
            wanted[flag] = (argument, flags.get(flag))
    for name, value in asked.items():
        knob = knobs.get(name)
        if knob is not None and knob.flag:
            wanted.pop(knob.flag, None)
            wanted[name] = (value, flags.get(knob.flag))
        elif knob is not None and knob.speculative_key:
            wanted[name] = (value, speculative.get(knob.speculative_key))
    changed = {n: found for n, (value, found) in wanted.items() if found is not None and not _same(value, found)}
    return {**_unasked(flags, wanted, knobs), **changed}


def _effective_flags(engine: Readings) -> dict[str, Scalar]:
    config = _section(engine.info.get("vllm_config", engine.info))
    found: dict[str, Scalar] = {}
    for flag, (section, field) in _FIELDS.items():
        value = _section(config.get(section)).get(field)
        if isinstance(value, bool | int | float | str):
            found[flag] = value
    for flag, label in _LABELS.items():
        if (text := engine.cache_config.get(label)) not in (None, "None"):
            found[flag] = _typed(str(text))
    for flag, pattern, value in _LOG:
        if matches := pattern.findall(engine.log):
            found[flag] = _typed(str(matches[-1])) if value is None else value
    return found


def _speculative(info: Mapping[str, Any]) -> dict[str, Scalar]:
    """Keys of the speculative configuration; an engine that tells its configuration but has none speculates not."""
    config = _section(info.get("vllm_config", info))
    if "speculative_config" not in config:
        return {}
    given = _section(config["speculative_config"])
    found = {key: value for key, value in given.items() if isinstance(value, bool | int | float | str)}
    return {**found, "method": found.get("method", "none")}


def _unasked(flags: Mapping[str, Scalar], wanted: Mapping[str, object], knobs: Mapping[str, Knob]) -> dict[str, Scalar]:
    """What the engine lowered or switched off although nobody had named it."""
    asked_flags = {knobs[name].flag or name if name in knobs else name for name in wanted}
    found: dict[str, Scalar] = {}
    for flag, name in _NAMES_OF_UNASKED.items():
        value = flags.get(flag)
        if flag in asked_flags or value is None:
            continue
        sequences = flags.get("max-num-seqs")
        lowered = isinstance(value, int) and isinstance(sequences, int) and value < sequences
        if flag == "cudagraph-mode" or (flag == "max-num-active-seqs" and lowered):
            found[name] = value
    return found


def _same(asked: Scalar, found: Scalar) -> bool:
    if asked == "auto":
        return True
    if isinstance(asked, str) or isinstance(found, str):
        return _normal(str(asked)) == _normal(str(found))
    return asked == found


def _normal(text: str) -> Scalar:
    """One spelling of what vLLM takes in several: 32k (vllm/utils/argparse_utils.py), half, torch.float16."""
    plain = text.removeprefix("torch.")
    if match := _HUMAN.fullmatch(plain):
        return round(float(match[1]) * _SUFFIXES[match[2]])
    return _typed(_DTYPES.get(plain, plain))


def _typed(text: str) -> Scalar:
    if text in ("True", "False"):
        return text == "True"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _section(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
