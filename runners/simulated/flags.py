"""The command line: `serve MODEL` and the flags of `vllm serve` that the simulated engine understands.

Flags that have an effect land in a frozen `ServeFlags`; a list of flags that exist in vLLM but change nothing here
is accepted and ignored; any other flag ends the process with exit code 2 and "unrecognized arguments", as in vLLM.
`--config FILE` is read like vLLM reads it: its keys become arguments in front of those of the command line. Whether
the values can be served is decided in `setup`.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

__all__ = ["ServeFlags", "parse_flags"]

KV_DTYPES = (
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "nvfp4",
    "int8_per_token_head",
    "fp8_per_token_head",
)
DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}

WITH_VALUE_WITHOUT_EFFECT = (
    "attention-backend", "compilation-config", "cudagraph-capture-sizes", "distributed-executor-backend",
    "download-dir",
    "gdn-prefill-backend", "generation-config", "load-format", "mamba-backend", "mamba-block-size", "mamba-cache-dtype",
    "mamba-cache-mode", "mamba-ssm-cache-dtype", "max-logprobs", "model-impl", "O", "optimization-level",
    "performance-mode", "pipeline-parallel-size", "prefix-caching-hash-algo", "prefix-match-unit", "quantization",
    "reasoning-parser", "root-path", "safetensors-load-strategy", "scheduling-policy", "shutdown-timeout",
    "stream-interval", "structured-outputs-config", "tokenizer", "tokenizer-mode", "tool-call-parser",
    "uvicorn-log-level", "watermark",
)  # fmt: skip
SWITCHES_WITHOUT_EFFECT = (
    "async-scheduling", "disable-cascade-attn", "disable-hybrid-kv-cache-manager", "disable-log-stats",
    "disable-uvicorn-access-log", "enable-auto-tool-choice", "enable-chunked-prefill", "enable-force-include-usage",
    "enable-log-outputs", "enable-log-requests", "enable-per-request-metrics", "enable-server-load-tracking",
    "kv-cache-metrics", "language-model-only", "scheduler-reserve-full-isl", "skip-mm-profiling", "trust-remote-code",
    "use-tqdm-on-load",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """The flags that have an effect; None means not given."""

    model: str
    served_model_name: tuple[str, ...]
    host: str
    port: int
    api_key: tuple[str, ...]
    block_size: int | None
    enable_prefix_caching: bool
    max_num_seqs: int | None
    max_num_active_seqs: int | None
    max_num_batched_tokens: int | None
    max_num_scheduled_tokens: int | None
    max_model_len: int | None
    long_prefill_token_threshold: int
    speculative_config: dict[str, Any] | None
    kv_cache_dtype: str
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    num_gpu_blocks_override: int | None
    enforce_eager: bool
    max_cudagraph_capture_size: int | None
    dtype: str
    enable_prompt_tokens_details: bool
    seed: int
    override_generation_config: dict[str, Any]
    tensor_parallel_size: int
    calibration: str | None
    time_scale: float | None
    """--time-scale N: one second of simulated time takes 1/N seconds. Not a flag of vLLM, like --calibration."""


def parse_flags(argv: Sequence[str]) -> ServeFlags:
    """Read a command line.

    Args:
        argv: arguments after the program's name, with or without the word `serve` in front.

    Raises:
        SystemExit: with code 2 and a usage message on stderr, as argparse does.
    """
    arguments = list(argv[1:] if argv[:1] == ["serve"] else argv)
    parser = _parser()
    arguments = _with_config_file(parser, arguments)
    spaced = parser.parse_args([_dashed(argument) for argument in arguments])
    values = {field.name: getattr(spaced, field.name) for field in fields(ServeFlags) if hasattr(spaced, field.name)}
    values["model"] = spaced.model or spaced.model_tag
    if values["model"] is None:
        parser.error("the following arguments are required: model")
    values["served_model_name"] = tuple(spaced.served_model_name or (values["model"],))
    values["api_key"] = tuple(spaced.api_key or ())
    values["override_generation_config"] = spaced.override_generation_config or {}
    values["speculative_config"] = _speculative_config(parser, spaced)
    return ServeFlags(**values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm serve", allow_abbrev=False)
    add = parser.add_argument
    add("model_tag", nargs="?", help="the model to serve")
    add("--model")
    add("--served-model-name", nargs="+")
    add("--host", default="0.0.0.0")  # noqa: S104 - vLLM's default; the tuner always gives a loopback address
    add("--port", type=int, default=8000)
    add("--api-key", nargs="+")
    for name in ("block-size", "max-num-active-seqs", "max-num-scheduled-tokens", "num-gpu-blocks-override"):
        add(f"--{name}", type=int)
    for name in (
        "max-num-seqs",
        "max-num-batched-tokens",
        "max-model-len",
        "kv-cache-memory-bytes",
        "max-cudagraph-capture-size",
    ):
        add(f"--{name}", type=_amount)
    add("--long-prefill-token-threshold", type=int, default=0)
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--enable-prompt-tokens-details", action=argparse.BooleanOptionalAction, default=False)
    add("--enforce-eager", action=argparse.BooleanOptionalAction, default=False)
    add("--speculative-config", type=_json_object)
    add("--spec-method")
    add("--spec-model")
    add("--spec-tokens", type=int)
    add("--kv-cache-dtype", choices=KV_DTYPES, default="auto")
    add("--dtype", choices=DTYPES, default="auto")
    add("--gpu-memory-utilization", type=float, default=0.92)
    add("--seed", type=int, default=0)
    add("--override-generation-config", type=_json_object)
    add("--tensor-parallel-size", "-tp", type=int, default=1)
    add("--calibration", help="simulated engine only: name or path; default SIMULATED_CALIBRATION")
    add(
        "--time-scale",
        type=float,
        help="simulated engine only: how much faster than real time; default SIMULATED_TIME_SCALE",
    )
    for name in WITH_VALUE_WITHOUT_EFFECT:
        add(f"-{name}" if len(name) == 1 else f"--{name}", nargs="+", help=argparse.SUPPRESS)
    for name in SWITCHES_WITHOUT_EFFECT:
        add(f"--{name}", action=argparse.BooleanOptionalAction, help=argparse.SUPPRESS)
    return parser


def _with_config_file(parser: argparse.ArgumentParser, arguments: list[str]) -> list[str]:
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag != "--config":
            continue
        width = 1 if equals else 2
        if not equals:
            if index + 1 >= len(arguments):
                parser.error("argument --config: expected one argument")
            value = arguments[index + 1]
        from_file = _read_config(parser, Path(value))
        return [*from_file, *arguments[:index], *arguments[index + width :]]
    return arguments


def _read_config(parser: argparse.ArgumentParser, path: Path) -> list[str]:
    import yaml  # noqa: PLC0415 - only needed with --config

    if path.suffix not in (".yaml", ".yml"):
        parser.error(f"argument --config: Config file must be of a yaml/yml type. {path.suffix[1:]} supplied")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        parser.error(f"argument --config: Unable to read the config file at {path}: {error}")
    if not isinstance(content, dict):
        parser.error(f"argument --config: {path} must hold a mapping of flags")
    arguments = []
    for key, value in content.items():
        if isinstance(value, bool):
            arguments.append(f"--{key}" if value else f"--no-{key}")
        elif isinstance(value, dict):
            arguments += [f"--{key}", json.dumps(value)]
        elif isinstance(value, list):
            arguments += [f"--{key}", *map(str, value)] if value else []
        else:
            arguments += [f"--{key}", str(value)]
    return arguments


def _speculative_config(parser: argparse.ArgumentParser, spaced: argparse.Namespace) -> dict[str, Any] | None:
    config: dict[str, Any] = dict(spaced.speculative_config or {})
    short = (("spec_method", "method"), ("spec_model", "model"), ("spec_tokens", "num_speculative_tokens"))
    for option, key in short:
        value = getattr(spaced, option)
        if value is None:
            continue
        if key in config:
            parser.error(f"--{option.replace('_', '-')} conflicts with {key!r} in --speculative-config")
        config[key] = value
    return config or None


def _dashed(argument: str) -> str:
    """--max_num_seqs is --max-num-seqs, also with =value behind it."""
    flag, equals, value = argument.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if flag.startswith("--") else argument


def _amount(text: str) -> int:
    """An integer with an optional suffix: 4k is 4,000 and 4K is 4,096."""
    number, factor = (text[:-1], _SUFFIXES[text[-1]]) if text[-1:] in _SUFFIXES else (text, 1)
    return int(float(number) * factor) if factor > 1 else int(number)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        msg = f"Value {text} cannot be converted to JSON: {error}"
        raise argparse.ArgumentTypeError(msg) from error
    if not isinstance(value, dict):
        msg = f"Value {text} must be a JSON object"
        raise argparse.ArgumentTypeError(msg)
    return value
