"""Repairs sampling at temperature above 0 under speculation in vLLM's CPU engine (vllm-project/vllm#55005).

The CPU stand-in for the kernel that spreads per-request sampling values over the drafted tokens writes its result into
a converted copy and drops it, so temperature, top_k and top_p of every drafted token are uninitialised memory. This
replaces the stand-in before the worker registers it. vLLM calls ``register`` in each of its processes, through the
entry point group ``vllm.general_plugins``; with this plugin excluded by VLLM_PLUGINS the engine is as released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def expand(  # noqa: PLR0917 - vLLM passes the kernel's arguments by position
    output: torch.Tensor,
    input_val: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    replace_from: int,
    replace_to: int,
    MAX_NUM_TOKENS: int | None = None,  # noqa: ARG001, N803 - the kernel's own parameter; a CPU needs no bound
) -> None:
    """Write each request's value once per token of that request into ``output``.

    Args:
        output: Filled from its start; shape [tokens].
        input_val: One value per request; shape [requests].
        cu_num_tokens: Cumulative token counts; shape [requests].
        replace_from: A value to be replaced (greedy requests have temperature 0).
        replace_to: What to replace it with.
        MAX_NUM_TOKENS: Ignored.
    """
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    values = input_val.masked_fill(input_val == replace_from, replace_to)
    expanded = values.repeat_interleave(counts)
    output[: expanded.shape[0]].copy_(expanded)


def register() -> None:
    """Put the repair in place; a release without this stand-in has nothing to repair."""
    try:
        from vllm.utils import cpu_triton_utils  # noqa: PLC0415 - vLLM is there only when it calls this
    except ImportError:
        return
    if hasattr(cpu_triton_utils, "_expand_kernel_impl"):
        cpu_triton_utils._expand_kernel_impl = expand  # noqa: SLF001 - the only place where it can be repaired
