"""What is known before any launch: model, draft, vLLM release, GPUs, prompt lengths. Rules and offers judge by it."""

from dataclasses import dataclass
from typing import Literal

from search_spaces.checkpoint import Checkpoint
from search_spaces.geometry import Geometry
from search_spaces.release import Release

Device = Literal["cpu", "gpu", "large_gpu", "huge_gpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that engines may use."""

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known before any launch; whatever is empty or None is unknown, and no rule guesses it.

    Attributes:
        target: the model.
        draft: its draft, if any.
        release: the vLLM release line.
        device: which of vLLM's defaults apply.
        gpus: GPUs that one engine may use.
        target_geometry: the model's shape.
        draft_geometry: the draft's shape.
        prompt_tokens: lengths of the workload's prompts, smallest first.
    """

    target: Checkpoint
    draft: Checkpoint | None
    release: Release
    device: Device
    gpus: tuple[Gpu, ...] = ()
    target_geometry: Geometry | None = None
    draft_geometry: Geometry | None = None
    prompt_tokens: tuple[int, ...] = ()
