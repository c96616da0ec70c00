"""The body of /server_info?config_format=json: effective values under vLLM's section and field names.

Only the fields that a reader of knobs needs; everything else that vLLM prints there is left out.
"""

import os
from typing import Any

from runners.simulated.setup import EngineSetup

__all__ = ["server_info"]


def server_info(setup: EngineSetup) -> dict[str, Any]:
    """Describe an engine; `simulated` names the calibration so that nobody takes its figures for real ones."""
    flags = setup.flags
    names = list(flags.served_model_name)
    return {
        "vllm_config": {
            "model_config": {
                "model": flags.model,
                "served_model_name": names if len(names) > 1 else names[0],
                "max_model_len": setup.max_model_len,
                "dtype": f"torch.{'bfloat16' if flags.dtype == 'auto' else flags.dtype}",
                "seed": flags.seed,
                "enforce_eager": flags.enforce_eager,
                "override_generation_config": flags.override_generation_config,
            },
            "cache_config": {
                "block_size": setup.block_tokens,
                "gpu_memory_utilization": flags.gpu_memory_utilization,
                "cache_dtype": flags.kv_cache_dtype,
                "enable_prefix_caching": flags.enable_prefix_caching,
                "num_gpu_blocks": setup.memory.blocks,
                "num_gpu_blocks_override": flags.num_gpu_blocks_override,
                "kv_cache_memory_bytes": flags.kv_cache_memory_bytes,
            },
            "scheduler_config": {
                "max_num_seqs": setup.max_num_seqs,
                "max_num_active_seqs": setup.limits.max_sequences,
                "max_num_batched_tokens": setup.max_num_batched_tokens,
                "max_num_scheduled_tokens": setup.limits.max_step_tokens,
                "enable_chunked_prefill": True,
                "long_prefill_token_threshold": setup.limits.long_prefill_tokens,
            },
            "parallel_config": {"tensor_parallel_size": flags.tensor_parallel_size},
            "speculative_config": _speculative(setup),
        },
        "vllm_env": {
            name: value for name, value in os.environ.items() if name.startswith("VLLM_") and "KEY" not in name
        },
        "system_env": {},
        "simulated": {"calibration": setup.calibration.name, "provenance": setup.calibration.provenance},
    }


def _speculative(setup: EngineSetup) -> dict[str, Any] | None:
    if setup.speculation is None:
        return None
    given = setup.flags.speculative_config or {}
    return {
        "disable_eagle_block_drop": False,
        "draft_sample_method": "greedy",
        "rejection_sample_method": "standard",
        "num_speculative_tokens_per_batch_size": None,
        **given,
        "method": setup.speculation.method,
        "num_speculative_tokens": setup.speculation.draft_tokens,
    }
