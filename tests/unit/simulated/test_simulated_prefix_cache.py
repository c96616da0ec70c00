"""The prefix cache against figures measured on a real vLLM 0.32, and its block accounting."""

import pytest

from runners.simulated.calibration import Calibration, Memory
from runners.simulated.flags import parse_flags
from runners.simulated.offline import simulate_closed_loop
from runners.simulated.prefix_cache import BlockPool, chain_hashes
from runners.simulated.setup import resolve

DFLASH = '{"method":"dflash","model":"x/dflash","num_speculative_tokens":7}'
DFLASH_KEPT = '{"method":"dflash","model":"x/dflash","num_speculative_tokens":7,"disable_eagle_block_drop":true}'
NGRAM = '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}'


def cached_tokens(prompt_tokens: int, speculative: str | None, release: str = "0.32.0") -> tuple[int, int]:
    """Cached tokens of the same prompt again, and of the prompt plus 40 tokens."""
    argv = ["serve", "m", "--block-size", "32"]
    argv += ["--speculative-config", speculative] if speculative else []
    setup = resolve(parse_flags(argv), Calibration(release=release))
    prompt = list(range(1000, 1000 + prompt_tokens))
    bodies = [
        {"prompt": tokens, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        for tokens in (prompt, prompt, [*prompt, *range(5000, 5040)])
    ]
    sequences = simulate_closed_loop(setup, bodies, 1).sequences
    assert sequences[0].cached == 0
    return sequences[1].cached, sequences[2].cached


# Measured with KV block size 32: vLLM 0.32 on the CPU, `usage.prompt_tokens_details.cached_tokens`.
MEASURED = {
    128: {"none": (96, 128), "ngram": (96, 128), "dflash": (64, 96), "kept": (96, 128)},
    129: {"none": (128, 128), "ngram": (128, 128), "dflash": (96, 96), "kept": (128, 128)},
    200: {"none": (192, 192), "ngram": (192, 192), "dflash": (160, 160), "kept": (192, 192)},
    257: {"none": (256, 256), "ngram": (256, 256), "dflash": (224, 224), "kept": (256, 256)},
}
CONFIGS = {"none": None, "ngram": NGRAM, "dflash": DFLASH, "kept": DFLASH_KEPT}


@pytest.mark.parametrize("prompt_tokens", MEASURED)
@pytest.mark.parametrize("name", CONFIGS)
def test_cached_tokens_are_those_of_the_real_engine(prompt_tokens: int, name: str) -> None:
    assert cached_tokens(prompt_tokens, CONFIGS[name]) == MEASURED[prompt_tokens][name]


def test_dflash_drops_no_block_from_release_33() -> None:
    assert cached_tokens(200, DFLASH, release="0.33.0") == (192, 192)


def test_a_forced_kv_block_size_hides_short_prompts_from_the_cache() -> None:
    calibration = Calibration(memory=Memory(forced_kv_block_tokens=640))
    bodies = [{"prompt": list(range(700)), "max_tokens": 1, "temperature": 0}] * 2
    plain = resolve(parse_flags(["m", "--block-size", "32"]), calibration)
    dflash = resolve(parse_flags(["m", "--speculative-config", DFLASH]), calibration)
    assert [s.cached for s in simulate_closed_loop(plain, bodies, 1).sequences] == [0, 640]
    assert [s.cached for s in simulate_closed_loop(dflash, bodies, 1).sequences] == [0, 0]


def test_a_salt_and_a_different_first_block_isolate_prompts() -> None:
    tokens = list(range(64))
    plain = chain_hashes(tokens, 16, previous=1)
    assert plain != chain_hashes(tokens, 16, previous=2)
    changed = chain_hashes([999, *tokens[1:]], 16, previous=1)
    assert all(a != b for a, b in zip(plain, changed, strict=True))


def test_only_complete_blocks_are_hashed_and_hashing_can_be_continued() -> None:
    tokens = list(range(50))
    whole = chain_hashes(tokens, 16, previous=1)
    assert len(whole) == 3
    assert whole[:1] + chain_hashes(tokens, 16, previous=whole[0], start=16) == whole


def test_blocks_are_conserved_and_the_null_block_is_never_given_out() -> None:
    pool = BlockPool(9, 16, caching=True, drop_last=False)
    taken = pool.allocate(8)
    assert sorted(taken) == list(range(1, 9))
    assert pool.usage == 1.0
    pool.release(taken)
    assert pool.free == 8
    assert pool.usage == 0.0


def test_the_least_recently_freed_block_is_evicted_first_and_tails_before_heads() -> None:
    pool = BlockPool(5, 16, caching=True, drop_last=False)
    hashes = chain_hashes(list(range(64)), 16, previous=1)
    blocks = pool.allocate(4)
    for block, block_hash in zip(blocks, hashes, strict=True):
        pool.enter(block, block_hash)
    pool.release(blocks)
    pool.release(pool.allocate(1))
    assert pool.match(hashes, 65) == blocks[:3]


def test_shared_blocks_are_counted_once() -> None:
    pool = BlockPool(9, 16, caching=True, drop_last=False)
    hashes = chain_hashes(list(range(32)), 16, previous=1)
    blocks = pool.allocate(2)
    for block, block_hash in zip(blocks, hashes, strict=True):
        pool.enter(block, block_hash)
    matched = pool.match(hashes, 40)
    assert matched == blocks
    assert pool.cost(matched, 3) == 1
    pool.take(matched)
    pool.release(blocks)
    assert pool.free == 6
    pool.release(matched)
    assert pool.free == 8


def test_reset_forgets_everything_but_is_refused_while_blocks_are_held() -> None:
    pool = BlockPool(9, 16, caching=True, drop_last=False)
    hashes = chain_hashes(list(range(32)), 16, previous=1)
    blocks = pool.allocate(2)
    pool.enter(blocks[0], hashes[0])
    assert pool.reset() is False
    pool.release(blocks)
    assert pool.match(hashes, 40) == blocks[:1]
    assert pool.reset() is True
    assert pool.match(hashes, 40) == []


def test_without_caching_nothing_is_found() -> None:
    pool = BlockPool(9, 16, caching=False, drop_last=False)
    hashes = chain_hashes(list(range(32)), 16, previous=1)
    for block, block_hash in zip(pool.allocate(2), hashes, strict=True):
        pool.enter(block, block_hash)
    assert pool.match(hashes, 40) == []
