"""Calibration: every constant of the simulated engine, read from a YAML or JSON file.

The file mirrors the dataclasses below; a missing key takes the default, an unknown key or a wrong type is an error
that names file, key and remedy. Plain dataclasses and a small strict reader are used here instead of pydantic
because the process has to be up in a fraction of a second, hundreds of times. Formulas live where the constants are
used: `costs` (time), `acceptance` (accepted tokens), `memory` (KV blocks). Times are seconds of simulated time,
sizes are bytes.
"""

import dataclasses
import json
import os
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.simulated.errors import CalibrationError

__all__ = [
    "Calibration",
    "Costs",
    "Draft",
    "Kind",
    "Memory",
    "Noise",
    "Startup",
    "calibration_from_environment",
    "load_calibration",
]

SHIPPED = Path(__file__).parent / "calibrations"


@dataclass(frozen=True, slots=True)
class Costs:
    """Constants of the step time; the formula is in `costs.step_seconds`."""

    step_s: float = 0.010
    """Time of a step that does nothing: launching kernels, reading the weights once."""
    per_sequence_s: float = 0.0
    """Per decoding sequence: sampling, scheduling, detokenising."""
    verify_curve: tuple[tuple[float, float], ...] = ((1.0, 0.0), (64.0, 0.0), (1024.0, 0.030))
    """Piecewise linear (query tokens of all decoding sequences, additional seconds); extrapolated at the last slope."""
    verify_tile: int = 1
    """Query tokens are rounded up to a multiple of this: stairs of quantised kernels (16 for Marlin)."""
    per_prefill_token_s: float = 0.00005
    per_context_token_s: float = 0.0
    """Per token of context that attention reads, summed over the decoding sequences."""
    draft_pass_s: float = 0.0
    """One pass of a block drafter; autoregressive methods (eagle, mtp, draft_model) pay it K times."""
    per_speculating_sequence_s: float = 0.0
    """Additional, per decoding sequence under speculation: rejection sampling, drafting's own bookkeeping."""
    per_draft_token_s: float = 0.0
    """Per sequence and draft position of the pass (B x (K + 1) for a block drafter)."""
    graph_max_tokens: int = 0
    """Largest batch, in query tokens, that captured graphs cover; 0 means no limit. Lowered by
    --max-cudagraph-capture-size and to 0 graphs by --enforce-eager."""
    eager_factor: float = 1.0
    """Factor on the step time of a batch that no graph covers."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Random factors on the step time; all off by default. Seeded by SIMULATED_NOISE_SEED, never by the wall clock."""

    step_sigma: float = 0.0
    """Standard deviation of log(step time factor), drawn per step."""
    launch_sigma: float = 0.0
    """The same, drawn once per launch."""
    tail_share: float = 0.0
    """Share of steps that stall (0..1)."""
    tail_factor: float = 1.0
    """Factor on the time of a stalled step."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of traffic, recognised by its prompt: how well it can be drafted and how long its answers are."""

    name: str = "default"
    match: str = ""
    """Regular expression searched in the prompt text; the first kind that matches is taken, empty matches always."""
    conditional: tuple[float, ...] = (
        0.8,
        0.79,
        0.78,
        0.78,
        0.77,
        0.77,
        0.76,
        0.76,
        0.75,
        0.75,
        0.75,
        0.75,
        0.75,
        0.75,
        0.75,
    )
    """Acceptance of position k given that all earlier ones were accepted, temperature 0; the last value is repeated."""
    temperature_slope: float = 0.15
    """Relative loss of conditional acceptance per unit of temperature."""
    request_spread: float = 0.0
    """Standard deviation of a factor on `conditional` that is drawn per request."""
    context_half_tokens: int = 0
    """Context length at which conditional acceptance is halved (exponential decay); 0 means that it does not fall."""
    cached_factor: float = 1.0
    """Factor on conditional acceptance at a prompt that was cached in full (1 means caching does not hurt)."""
    output_tokens: float = 200.0
    """Median of the natural length of an answer (log-normal)."""
    output_sigma: float = 0.6
    """Standard deviation of its logarithm; 0 makes every answer as long as `output_tokens`."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is known about the draft model when its directory holds no config.json."""

    block_size: int = 16
    """Trained draft block size (anchor included): K is at most this minus one."""
    fit: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    """Piecewise linear (K, factor on conditional acceptance): a draft trained at one length is worse at others."""
    over_block_factor: float = 0.15
    """Factor on conditional acceptance when K exceeds block_size - 1; vLLM does not check (vllm#50012)."""
    method_factors: Mapping[str, float] = field(
        default_factory=lambda: {
            "dflash": 1.0,
            "dspark": 1.0,
            "eagle3": 0.9,
            "mtp": 0.95,
            "ngram": 0.45,
            "draft_model": 0.9,
        }
    )
    """Factor on conditional acceptance per method; a method that is not listed has 0.8."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory; the sizing is in `memory.plan_memory`."""

    device: str = "cuda"
    """`cuda` sizes the KV cache by --gpu-memory-utilization; `cpu` by VLLM_CPU_KVCACHE_SPACE (GiB, default 1)."""
    device_bytes: int = 24 * 2**30
    weights_bytes: int = 8 * 2**30
    draft_weights_bytes: int = 512 * 2**20
    kv_bytes_per_token: int = 128 * 2**10
    """Of the target, at the automatic KV dtype (2 bytes per value); 1-byte dtypes halve it."""
    draft_kv_bytes_per_token: int = 0
    activation_bytes_per_token: int = 256 * 2**10
    """Times max_num_batched_tokens: peak of the profiling run."""
    graph_bytes_per_token: int = 64 * 2**10
    """Times the captured query tokens: memory of CUDA graphs, taken after the KV cache is sized."""
    kv_block_tokens: int = 16
    """KV block size when --block-size is not given."""
    forced_kv_block_tokens: int = 0
    """KV block size that a hybrid target forces whatever is asked for; 0 means none."""


@dataclass(frozen=True, slots=True)
class Startup:
    """Seconds of simulated time that a start takes, by phase."""

    import_s: float = 0.0
    weights_s: float = 0.0
    compile_s: float = 0.0
    """Skipped by --enforce-eager."""
    graphs_s: float = 0.0
    """Skipped by --enforce-eager."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """All constants of one simulated engine and machine."""

    name: str = "default"
    provenance: str = "Made up; plausible shape only."
    """Where the numbers come from."""
    release: str = "0.32.0"
    """vLLM release whose rules apply (block drop, known keys of the speculative config)."""
    max_model_len: int = 4096
    """Used when the model directory holds no config.json."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    costs: Costs = field(default_factory=Costs)
    noise: Noise = field(default_factory=Noise)
    draft: Draft = field(default_factory=Draft)
    memory: Memory = field(default_factory=Memory)
    startup: Startup = field(default_factory=Startup)
    kinds: tuple[Kind, ...] = (Kind(),)

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        for kind in self.kinds:
            if not kind.conditional or not all(0 <= value <= 1 for value in kind.conditional):
                msg = f"kinds[{kind.name}].conditional is {kind.conditional}: give at least one value in 0..1"
                raise CalibrationError(msg)
            try:
                re.compile(kind.match)
            except re.error as error:
                msg = f"kinds[{kind.name}].match is {kind.match!r}: not a regular expression ({error})"
                raise CalibrationError(msg) from error
        for key, curve in (("costs.verify_curve", self.costs.verify_curve), ("draft.fit", self.draft.fit)):
            xs = [x for x, _ in curve]
            if not xs or xs != sorted(set(xs)):
                msg = f"{key} is {curve}: give at least one point, in ascending order of its first value"
                raise CalibrationError(msg)
        if not self.kinds or self.kinds[-1].match:
            msg = "the last entry of kinds must have an empty `match`: it is the default for every other prompt"
            raise CalibrationError(msg)


def load_calibration(name_or_path: str) -> Calibration:
    """Read a calibration.

    Args:
        name_or_path: name of a shipped one ("default", "cpu-demo") or the path of a YAML or JSON file.

    Raises:
        CalibrationError: the file is missing, unreadable or holds an unknown key or a wrong value.
    """
    path = SHIPPED / f"{name_or_path}.yaml"
    if not path.is_file():
        path = Path(name_or_path)
    if not path.is_file():
        shipped = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.yaml")))
        msg = f"no calibration {name_or_path!r}: give the path of a YAML or JSON file or one of {shipped}"
        raise CalibrationError(msg)
    try:
        calibration: Calibration = _build(Calibration, _parse(path), "")
    except CalibrationError as error:
        msg = f"{path}: {error}"
        raise CalibrationError(msg) from None
    return calibration


def _parse(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            msg = f"not JSON ({error})"
            raise CalibrationError(msg) from error
    import yaml  # noqa: PLC0415 - 30 ms that a JSON calibration need not pay

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    except yaml.YAMLError as error:
        msg = f"not YAML ({error})"
        raise CalibrationError(msg) from error


def _build(kind: type[Any], value: Any, where: str) -> Any:
    """Make a dataclass from a mapping, strictly: `where` is the dotted key for messages."""
    if not isinstance(value, Mapping):
        msg = f"{where or 'the file'} must be a mapping, not {type(value).__name__}"
        raise CalibrationError(msg)
    hints = typing.get_type_hints(kind)
    known = {item.name for item in dataclasses.fields(kind)}
    for key in value:
        if key not in known:
            msg = f"unknown key {where}{key}: known here are {', '.join(sorted(known))}"
            raise CalibrationError(msg)
    return kind(**{key: _convert(hints[key], item, f"{where}{key}") for key, item in value.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast("type[Any]", hint), value, f"{where}.")
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and isinstance(value, list):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_convert(args[0], item, f"{where}[{index}]") for index, item in enumerate(value))
        if len(args) == len(value):
            return tuple(_convert(arg, item, where) for arg, item in zip(args, value, strict=True))
    elif origin is Mapping and isinstance(value, dict):
        return types.MappingProxyType(
            {str(key): _convert(args[1], item, f"{where}.{key}") for key, item in value.items()}
        )
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif hint in (int, str) and isinstance(value, hint) and not isinstance(value, bool):
        return value
    msg = f"{where} is {value!r}: expected {getattr(hint, '__name__', hint)}"
    raise CalibrationError(msg)


def calibration_from_environment(option: str | None) -> Calibration:
    """The calibration named on the command line, else by SIMULATED_CALIBRATION, else the shipped default."""
    return load_calibration(option or os.environ.get("SIMULATED_CALIBRATION") or "default")
