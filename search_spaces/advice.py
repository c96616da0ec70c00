"""What a plan should say about a space besides refusals: KV blocks of hybrids, prompts that can never hit, memory."""

from search_spaces.limits import longest_sequence, tensor_parallel_size, true_kv_block
from search_spaces.memory import memory_of
from search_spaces.space import ResolvedSpace

GIB = 2**30


def notes(space: ResolvedSpace) -> tuple[str, ...]:
    """Sentences, the most important first."""
    found = (_never_hit(space), _hybrid_blocks(space), _memory(space), _suffix(space))
    return tuple(sentence for sentence in found if sentence)


def kv_blocks_by_k(space: ResolvedSpace) -> dict[int, int]:
    """Tokens of a KV block without speculation (K=0) and for every K of the space, the engine choosing its size."""
    base = space.settings(space.baseline())
    knob = space.knobs.get("num_speculative_tokens")
    lengths = [0, *(value for value in (knob.values() if knob else ()) if isinstance(value, int))]
    blocks = {}
    for k in lengths:
        speculating = {"method": "dflash" if k else "none", "num_speculative_tokens": k}
        block = true_kv_block({**base, **speculating}, space.facts)
        if block is not None:
            blocks[k] = block
    return blocks


def share_that_never_hits(space: ResolvedSpace, block_tokens: int) -> float:
    """Share of the workload's prompts that are shorter than a KV block; 0 without prompts."""
    prompts = space.facts.prompt_tokens
    return sum(length < block_tokens for length in prompts) / len(prompts) if prompts else 0.0


def _never_hit(space: ResolvedSpace) -> str | None:
    blocks = kv_blocks_by_k(space)
    shares = {k: share_that_never_hits(space, block) for k, block in blocks.items()}
    if not shares or max(shares.values()) < 0.01:
        return None
    k = max(shares, key=lambda length: (shares[length], -length))
    least = min(shares.values())
    span = f"{shares[k]:.0%}" if round(least, 2) == round(shares[k], 2) else f"{least:.0%} to {shares[k]:.0%}"
    return (
        f"{span} of the prompts are shorter than one KV block ({blocks[k]} tokens at K={k}) and can never hit the "
        "prefix cache"
    )


def _hybrid_blocks(space: ResolvedSpace) -> str | None:
    shape, blocks = space.facts.target_geometry, kv_blocks_by_k(space)
    if shape is None or not shape.is_hybrid:
        return None
    if not blocks:
        return "the model has recurrent layers of a kind not known here: its true KV block is in the engine's log"
    shown = ", ".join(f"{block} at K={k}" for k, block in blocks.items() if k in (0, 1, 3, 7, max(blocks)))
    return f"the model has recurrent layers, so a KV block holds one state: {shown} tokens, whatever --block-size says"


def _memory(space: ResolvedSpace) -> str | None:
    settings = space.settings(space.recipe() or space.baseline())
    memory, prompts = memory_of(settings, space.facts), space.facts.prompt_tokens
    if memory is None:
        return None
    longest = longest_sequence(settings, space.facts)
    typical = prompts[len(prompts) // 2] if prompts else longest or 0
    size = tensor_parallel_size(settings)
    return (
        f"{size} GPU{'s' if size > 1 else ''} of {memory.gpu / GIB:.0f} GiB an engine: weights take "
        f"{memory.weights / GIB:.1f} GiB of each, the KV cache gets at most {max(0, memory.kv) / GIB:.1f} GiB: "
        f"{memory.sequences(typical)} sequences as long as the median prompt ({typical} tokens); activations and CUDA "
        "graphs take more"
    )


def _suffix(space: ResolvedSpace) -> str | None:
    method = space.knobs.get("method")
    if method is None or "suffix" not in method.values():
        return None
    return "method=suffix needs the package arctic-inference in the engine's environment"
