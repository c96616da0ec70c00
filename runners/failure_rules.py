"""What engines write when they fail, and what to say about it: a table, no code that runs.

Read from top to bottom; the first rule that matches wins, so the specific come before the general. Patterns are words
that vLLM 0.28 to 0.33, PyTorch, argparse or the kernel really write; those that could be provoked are tested against
excerpts of real logs. A message is one sentence: what, which value, what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runners.errors import FailureKind


@dataclass(frozen=True, slots=True)
class Failure:
    """What an engine ended of.

    Attributes:
        kind: Failure class.
        message: One sentence: what, which value, what to do.
        infrastructure: The host is to blame, and the same configuration may work on another try.
    """

    kind: FailureKind
    message: str
    infrastructure: bool = False


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What a log looks like when it is this failure.

    Attributes:
        kind: Failure class.
        pattern: Searched in what the engine complained of.
        message: Says it; may name the groups of the pattern.
        infrastructure: As in ``Failure``.
    """

    kind: FailureKind
    pattern: re.Pattern[str]
    message: str
    infrastructure: bool = False


def _rule(kind: FailureKind, pattern: str, message: str, *, infrastructure: bool = False) -> FailureRule:
    return FailureRule(kind, re.compile(pattern), message, infrastructure)


FAILURE_RULES: tuple[FailureRule, ...] = (
    # The command line
    _rule(
        "bad_flag",
        r"error: unrecognized arguments: (?P<flag>.+)",
        "this engine does not know the arguments {flag}; remove them or use the release that has them",
    ),
    _rule(
        "bad_flag",
        r"error: argument (?P<flag>[^:\n]+): (?P<why>.+)",
        "the engine refuses the argument {flag}: {why}; give it an allowed value",
    ),
    _rule(
        "bad_flag", r"error: (?P<why>(?:ambiguous option|the following arguments).+)", "the engine's arguments: {why}"
    ),
    _rule(
        "bad_flag",
        r"validation errors? for (?P<where>\w+Config)\n(?P<flag>[\w.]+)\n\s+(?P<why>Unexpected keyword argument.*?) \[",
        "this engine's {where} does not know {flag!r} ({why}); remove it or use the release that has it",
    ),
    # What is on disk
    _rule(
        "disk_full",
        r"No space left on device|Errno 28",
        "the disk is full; free space and launch again",
        infrastructure=True,
    ),
    _rule(
        "gated_model",
        r"(?:GatedRepoError|Cannot access gated repo|access to it|401 Client Error).*?(?:for url: (?P<model>\S+))?",
        "the model is gated or private; accept its licence on the hub and set HF_TOKEN, or give a local directory",
    ),
    _rule(
        "tokenizer",
        r"(?P<why>Couldn't instantiate the backend tokenizer|Can't load (?:the )?tokenizer for .+|"
        r"Unrecognized (?:configuration class|model) .*[Tt]okenizer.*)",
        "the tokenizer cannot be loaded ({why}); put the tokenizer files beside the model or pass --tokenizer",
    ),
    _rule(
        "missing_model",
        r"Repo id must be in the form [^:]*: '(?P<model>[^']*)'",
        "there is no model at {model!r}; give a directory with config.json or the name of a model on the hub",
    ),
    _rule(
        "missing_model",
        r"Invalid repository ID or local directory specified: '(?P<model>[^']*)'",
        "there is no model at {model!r}; give a directory with config.json or the name of a model on the hub",
    ),
    _rule(
        "missing_model",
        r"(?:RepositoryNotFoundError|LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to 'https://huggingface.co')",
        "the model is neither on this machine nor can it be had from the hub; download it first, or check its name and "
        "the network",
    ),
    _rule(
        "missing_model",
        r"Cannot find any model weights with [`'\"]?(?P<model>[^`'\"\s]+)",
        "{model} holds no weights; put its safetensors files there",
    ),
    # Memory
    _rule(
        "kv_too_small",
        r"To serve at least one request with the models?'?s? max seq len \((?P<length>\d+)\).*?"
        r"estimated maximum model length is (?P<fits>\d+)",
        "the KV cache has no room for one request of {length} tokens (at most {fits}); lower --max-model-len to {fits} "
        "or give the KV cache more memory",
    ),
    _rule(
        "kv_too_small",
        r"max seq len \((?P<length>\d+)\).*?(?:larger than the|KV cache)",
        "the KV cache has no room for one request of {length} tokens; lower --max-model-len or give it more memory",
    ),
    _rule(
        "oom_kv",
        r"No available memory for the cache blocks",
        "weights and activations leave no memory for the KV cache; raise --gpu-memory-utilization, or lower "
        "--max-num-batched-tokens or --max-num-seqs",
    ),
    _rule(
        "gpu_busy",
        r"(?P<free>Free memory on device .*?) (?:on startup )?is less than desired GPU memory utilization",
        "the GPU is not free ({free}); end what else runs on it, or lower --gpu-memory-utilization",
        infrastructure=True,
    ),
    _rule(
        "oom_kv",
        r"(?:Available memory on node .*? is less than|is larger than available) (?P<why>.{0,120})",
        "the host has not enough memory for the KV cache ({why}); lower --kv-cache-memory-bytes",
    ),
    _rule(
        "oom_kv",
        r"out of memory occurred when warming up (?P<what>sampler|pooler)",
        "out of GPU memory when warming up the {what}; lower --max-num-seqs or --gpu-memory-utilization",
    ),
    _rule(
        "oom_host",
        r"std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)|\[Errno 12\]|MemoryError|Cannot allocate memory",
        "the host is out of memory; end what else runs on it, or lower the size of the KV cache",
    ),
    # What the engine cannot do
    _rule(
        "unsupported",
        r"(?P<why>Model Runner V[12] does not support:? [^\n[]+)",
        "{why}; choose another speculative method or a release or platform that can",
    ),
    _rule(
        "unsupported",
        r"No common block size for (?P<size>\d+) \((?P<allowed>[^\n]*)\)\.",
        "no attention backend here can use a KV block size of {size} ({allowed}); choose one that it can",
    ),
    _rule(
        "unsupported",
        r"(?m)ImportError: (?P<what>[^\n]*?) is required for (?P<purpose>[^\n.]*)\. "
        r"Install via (?P<remedy>[^\n]*?)\.?$",
        "{purpose} needs {what}, which is not in the engine's environment; install it there ({remedy})",
    ),
    _rule(
        "unsupported",
        r"Model architectures (?P<what>\[[^\]]*\]) are not supported",
        "this engine does not know the model architecture {what}; use a release that does",
    ),
    _rule(
        "unsupported",
        r"model type [`'\"]?(?P<what>[\w.-]+)[`'\"]? but Transformers does not recognize",
        "this engine does not know the model type {what!r}; use a release that does",
    ),
    _rule(
        "draft_mismatch",
        r"(?P<why>Tried to load weights of size [^\n]+|size mismatch for [^\n]+|"
        r"[^\n]*(?:[Dd]raft|[Tt]arget) (?:model|vocab)[^\n]*(?:vocab|hidden)[^\n]*(?:match|same|equal)[^\n]*)",
        "a checkpoint does not fit ({why}); use the draft that was trained for this target",
    ),
    _rule(
        "dtype",
        r"(?P<why>[^\n]*(?:[Bb]float16 is only supported on GPUs|dtype [^\n]* (?:is )?not supported|"
        r"torch\.\w+ is not supported for)[^\n]*)",
        "the engine cannot run this data type here ({why}); choose another --dtype or --kv-cache-dtype",
    ),
    # What it computes, and whether it still does
    _rule(
        "wrong_output",
        r"(?P<why>NaNs detected in logits|Out of range float values are not JSON compliant)",
        "the engine computes numbers that are none ({why}); choose another --dtype, --kv-cache-dtype or attention "
        "backend",
    ),
    _rule(
        "hung",
        r"TimeoutError: RPC call to (?P<what>\w+) timed out",
        "the engine's workers did not answer {what} in time: they hang, or one step takes too long; lower "
        "--max-num-batched-tokens, or look at the GPUs",
    ),
    _rule(
        "timeout",
        r"(?P<why>Timed out waiting for engine core processes to\s+start|"
        r"Did not receive response from front-end process within \d+ minutes)",
        "the engine gave up on its own start ({why}); check how fast the weights load, or allow more time with "
        "--ready-timeout",
    ),
    # The host
    _rule(
        "port",
        r"(?:Errno 98|error while attempting to bind|Address already in use)",
        "the port was taken by another process; launch again",
        infrastructure=True,
    ),
    _rule(
        "driver",
        r"(?P<why>CUDA driver version is insufficient[^\n]*|no CUDA-capable device[^\n]*|Found no NVIDIA driver[^\n]*|"
        r"NVML: (?:Driver/library version mismatch|Unknown Error)[^\n]*|"
        r"CUDA error: (?:unknown error|system not yet)[^\n]*|"
        r"Failed to infer device type)",
        "the GPU driver cannot be used ({why}); check nvidia-smi on this host",
        infrastructure=True,
    ),
    _rule(
        "nccl",
        r"(?P<why>(?:ncclSystemError|ncclUnhandledCudaError|ncclInternalError|NCCL error)[^\n]*)",
        "the GPUs cannot talk to each other ({why}); set NCCL_DEBUG=INFO and look at the host",
        infrastructure=True,
    ),
    # What is left of complaints about the configuration
    _rule(
        "unsupported",
        r"(?m)^[\w.]*(?:Error|Exception): (?P<why>[^\n]*\b(?:is|are) not (?:yet )?supported\b[^\n]*)",
        "the engine says: {why}; change the setting that it names",
    ),
    _rule(
        "unsupported",
        r"validation errors? for \w+Config\nmethod\n\s+Input should be[^\n]*input_value='(?P<value>[^']*)'",
        "this engine does not know the speculative method {value!r}; choose one that it has, or another release",
    ),
    _rule(
        "bad_flag",
        r"validation errors? for (?P<where>\w+Config)\n(?P<flag>[\w.]+)\n\s+(?P<why>[^\n]*?) \[type=",
        "the engine refuses {flag} in its {where}: {why}; give it an allowed value",
    ),
    _rule(
        "bad_flag",
        r"validation errors? for \w+Config\n\s+Value error, (?P<why>[^\n]*?)(?: \[type=|\n)",
        "the engine refuses its configuration: {why}",
    ),
)
GPU_OOM = re.compile(r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|HIP out of memory)")
GPU_OOM_FAILURES = (
    (
        re.compile(r"Capturing CUDA graph|Graph capturing"),
        Failure(
            "oom_graph_capture",
            "out of GPU memory when capturing graphs; lower --max-num-seqs or --max-cudagraph-capture-size, or leave "
            "more memory free with a lower --gpu-memory-utilization",
        ),
    ),
    (
        re.compile(r"Model loading took|Loading weights took"),
        Failure(
            "oom_kv",
            "out of GPU memory after the weights were loaded; lower --gpu-memory-utilization, --max-num-batched-tokens "
            "or --max-num-seqs",
        ),
    ),
    (
        re.compile(""),
        Failure(
            "oom_weights",
            "out of GPU memory when loading the weights; use more GPUs, a smaller or quantised model, or end what else "
            "runs on the GPU",
        ),
    ),
)
