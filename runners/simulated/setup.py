"""From flags and calibration to what the engine will do, or to the reason why it refuses to start.

Checks come in vLLM's order and words: model, speculative configuration, scheduler limits, memory. The result says
what is *effective*: a KV block size that the target forces, the sequence limit that 0.33 lowers under a block
drafter.
"""

from dataclasses import dataclass

from runners.simulated.acceptance import Speculation
from runners.simulated.calibration import Calibration
from runners.simulated.checkpoints import model_config
from runners.simulated.errors import value_error
from runners.simulated.flags import ServeFlags
from runners.simulated.memory import MemoryPlan, MemoryRequest, plan_memory
from runners.simulated.sequences import Limits
from runners.simulated.speculation import SpeculativePlan, release_of, speculative_plan

__all__ = ["EngineSetup", "resolve", "rule_values"]


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """Everything that is fixed at start."""

    flags: ServeFlags
    calibration: Calibration
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_tokens: int
    """KV block size in tokens, the effective one."""
    memory: MemoryPlan
    limits: Limits
    speculation: Speculation | None
    drop_last_block: bool
    graph_tokens: int | None
    """Largest batch in query tokens that graphs cover; None when the calibration has no such limit."""


def resolve(flags: ServeFlags, calibration: Calibration) -> EngineSetup:
    """Check the configuration and work out its effective values.

    Raises:
        StartupError: with the exception and message that vLLM's log would show.
    """
    target = model_config(flags.model)
    max_model_len = _max_model_len(flags, int(target.get("max_position_embeddings", calibration.max_model_len)))
    batched = flags.max_num_batched_tokens or max(calibration.max_num_batched_tokens, flags.max_num_seqs or 0)
    sequences = flags.max_num_seqs or min(calibration.max_num_seqs, batched)
    plan = speculative_plan(flags.speculative_config, target, calibration)
    _check_scheduler(batched, sequences, plan)
    graph_tokens = _graph_tokens(flags, calibration, sequences * (1 + plan.draft_tokens))
    block_tokens = calibration.memory.forced_kv_block_tokens or flags.block_size or calibration.memory.kv_block_tokens
    request = MemoryRequest(
        block_tokens=block_tokens,
        max_model_len=max_model_len,
        max_num_batched_tokens=batched,
        kv_cache_dtype=flags.kv_cache_dtype,
        gpu_memory_utilization=flags.gpu_memory_utilization,
        kv_cache_memory_bytes=flags.kv_cache_memory_bytes,
        blocks_override=flags.num_gpu_blocks_override,
        draft=plan.has_draft_model,
        graph_tokens=graph_tokens or 0,
        devices=flags.tensor_parallel_size,
    )
    return EngineSetup(
        flags=flags,
        calibration=calibration,
        max_model_len=max_model_len,
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        block_tokens=block_tokens,
        memory=plan_memory(calibration.memory, request),
        limits=_limits(flags, calibration, plan, batched, sequences),
        speculation=plan.speculation,
        drop_last_block=plan.drop_last_block,
        graph_tokens=graph_tokens,
    )


def rule_values(setup: EngineSetup) -> dict[str, float]:
    """The values that fault rules may name (`faults.RULE_NAMES`)."""
    return {
        "block_size": setup.block_tokens,
        "enable_prefix_caching": float(setup.flags.enable_prefix_caching),
        "gpu_memory_utilization": setup.flags.gpu_memory_utilization,
        "max_model_len": setup.max_model_len,
        "max_num_batched_tokens": setup.max_num_batched_tokens,
        "max_num_seqs": setup.max_num_seqs,
        "num_speculative_tokens": setup.speculation.draft_tokens if setup.speculation else 0,
    }


def _max_model_len(flags: ServeFlags, derived: int) -> int:
    asked = flags.max_model_len or derived
    if asked > derived:
        raise value_error(
            f"User-specified max_model_len ({asked}) is greater than the derived max_model_len "
            f"(max_position_embeddings={derived} in model's config.json)."
        )
    return asked


def _check_scheduler(batched: int, sequences: int, plan: SpeculativePlan) -> None:
    if batched < sequences:
        raise value_error(
            f"max_num_batched_tokens ({batched}) must be greater than or equal to max_num_seqs ({sequences})."
        )
    if plan.speculation is not None and batched <= plan.draft_slots:
        raise value_error(
            "VllmConfig does not have enough slots to schedule a token and support the speculative decoding settings. "
            f"Got max_num_batched_tokens={batched} and scheduled_token_delta={plan.draft_slots}."
        )


def _limits(flags: ServeFlags, calibration: Calibration, plan: SpeculativePlan, batched: int, sequences: int) -> Limits:
    active = min(sequences, flags.max_num_active_seqs or sequences)
    if plan.is_block_drafter and release_of(calibration) >= (0, 33):
        active = min(active, max(1, batched // (plan.draft_tokens + 1)))
    return Limits(
        max_sequences=active,
        max_step_tokens=flags.max_num_scheduled_tokens or batched,
        long_prefill_tokens=flags.long_prefill_token_threshold,
        method=plan.speculation.method if plan.speculation else None,
        draft_tokens=plan.draft_tokens,
        schedule=plan.schedule,
    )


def _graph_tokens(flags: ServeFlags, calibration: Calibration, full_batch: int) -> int | None:
    """Captured query tokens: vLLM's min(max_num_seqs x (K + 1) x 2, limit); 0 with --enforce-eager."""
    if not calibration.costs.graph_max_tokens:
        return None
    if flags.enforce_eager:
        return 0
    return min(flags.max_cudagraph_capture_size or calibration.costs.graph_max_tokens, full_batch * 2)
