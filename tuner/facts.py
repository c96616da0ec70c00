"""Gathers what a plan knows before any launch: checkpoints' shapes, GPUs, lengths of prompts. Starts nothing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import runners.gpu
from search_spaces import Checkpoint, Device, Facts, Gpu, Release, read_geometry
from tuner.errors import UsageError
from workloads import Request

CHARS_PER_TOKEN = 4
"""Where a recording has no token counts. A rule of thumb for English text and code; other languages have fewer."""

GIB = 2**30
LARGE_GPU_BYTES = 70 * GIB
HUGE_GPU_BYTES = 160 * GIB
"""vLLM's own limits for its larger defaults (`EngineArgs.get_batch_defaults`)."""


def gather_facts(
    *,
    release: Release,
    target: Checkpoint,
    draft: Checkpoint | None,
    requests: Sequence[Request],
    device: Device,
    gpus: tuple[Gpu, ...],
    assumed_gpus: tuple[Gpu, ...] | None = None,
) -> Facts:
    """The facts that rules judge by.

    Args:
        release: the vLLM release line.
        target: the model.
        draft: its draft, if any.
        requests: the workload.
        device: which of vLLM's defaults apply on this host.
        gpus: GPUs of this host that the study may use.
        assumed_gpus: GPUs to plan for instead of the host's.

    Raises:
        CheckpointError: a config that was readable before is not any more.
    """
    if assumed_gpus is not None:
        gpus, device = assumed_gpus, assumed_device(assumed_gpus)
    return Facts(
        target=target,
        draft=draft,
        release=release,
        device=device,
        gpus=gpus,
        target_geometry=read_geometry(target.path),
        draft_geometry=read_geometry(draft.path) if draft is not None else None,
        prompt_tokens=tuple(sorted(map(prompt_tokens, requests))),
    )


def prompt_tokens(request: Request) -> int:
    """Tokens of a prompt as recorded, else as its token ids, else estimated from its characters."""
    if request.recorded is not None and request.recorded.prompt_tokens is not None:
        return request.recorded.prompt_tokens
    body = request.body
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return len(prompt)
    return sum(map(len, _texts(body))) // CHARS_PER_TOKEN


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    prompt = body.get("prompt")
    contents = [prompt] if prompt is not None else [message.get("content") for message in body.get("messages", ())]
    for content in contents:
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text


def known_gpus(found: Sequence[runners.gpu.Gpu]) -> tuple[Gpu, ...]:
    """What rules need of each GPU; nothing where one shares the host's memory, because then memory has no limit."""
    if any(not gpu.memory_bytes for gpu in found):
        return ()
    return tuple(Gpu(gpu.name, gpu.memory_bytes, gpu.compute_capability) for gpu in found)


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """GPUs such as "4x24GiB@8.9": how many, memory of each, and compute capability if it matters.

    Raises:
        UsageError: not of that form.
    """
    match = re.fullmatch(r"(?:([0-9]{1,2})x)?([0-9]+(?:\.[0-9]+)?)GiB(?:@([0-9]+)\.([0-9]+))?", text.strip())
    if not match or not int(match[1] or 1) or not float(match[2]):
        raise UsageError(f"--gpu {text!r} is not COUNTxMEMORY@CAPABILITY such as 4x24GiB@8.9, 80GiB or 2x96GiB")
    capability = (int(match[3]), int(match[4])) if match[3] else None
    return (Gpu("an assumed GPU", int(float(match[2]) * GIB), capability),) * int(match[1] or 1)


def assumed_device(gpus: tuple[Gpu, ...]) -> Device:
    """Which of vLLM's defaults apply to GPUs that are only assumed."""
    if not gpus:
        return "cpu"
    smallest = min(gpu.memory_bytes for gpu in gpus)
    if smallest >= HUGE_GPU_BYTES:
        return "huge_gpu"
    return "large_gpu" if smallest >= LARGE_GPU_BYTES else "gpu"
