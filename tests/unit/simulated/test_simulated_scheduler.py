"""The scheduler in simulated time: budgets, limits, preemption, speculation, and that text depends on none of it."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from runners.simulated.calibration import Calibration, Costs, Kind, load_calibration
from runners.simulated.flags import parse_flags
from runners.simulated.offline import OfflineResult, new_pool, simulate_closed_loop
from runners.simulated.requests import RequestReader
from runners.simulated.scheduler import Scheduler
from runners.simulated.sequences import Limits, SequenceState
from runners.simulated.setup import EngineSetup, resolve
from runners.simulated.text import Answer

FLAT = Calibration(costs=Costs(step_s=0.010, verify_curve=((1, 0.0), (2, 0.0)), per_prefill_token_s=0.0))


def setup_of(*flags: str, k: int = 0, calibration: Calibration = FLAT, **speculative: Any) -> EngineSetup:
    argv = ["serve", "m", *flags]
    if k:
        config = {"method": "dflash", "model": "x/dflash", "num_speculative_tokens": k, **speculative}
        argv += ["--speculative-config", json.dumps(config)]
    return resolve(parse_flags(argv), calibration)


def bodies(count: int, *, tokens: int = 64, prompt: int = 40) -> list[Mapping[str, Any]]:
    return [
        {
            "prompt": [index * 1000 + i for i in range(prompt)],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        for index in range(count)
    ]


def sequence(prompt: int = 40, tokens: int = 20, first: int = 0) -> SequenceState:
    answer = Answer(1, tokens, closed=False)
    return SequenceState(prompt=tuple(range(first, first + prompt)), answer=answer, seed=1, salt=1, curve=(0.0,) * 15)


def steps(setup: EngineSetup, sequences: list[SequenceState]) -> list[tuple[int, int]]:
    """(prefill tokens, verify tokens) of every step until all sequences are done."""
    scheduler = Scheduler(setup.limits, new_pool(setup))
    for item in sequences:
        scheduler.add(item)
    shapes = []
    while scheduler.busy:
        step = scheduler.plan(0.0)
        assert step is not None
        shape = scheduler.shape(step)
        shapes.append((shape.prefill_tokens, shape.verify_tokens))
        scheduler.commit(step, 0.0)
    return shapes


def test_one_request_takes_a_prefill_step_and_one_step_for_each_further_token() -> None:
    result = simulate_closed_loop(setup_of(), bodies(1, tokens=64), 1)
    assert result.output_tokens == 64
    assert result.duration_s == pytest.approx(64 * 0.010)


def test_long_prompts_are_prefilled_in_chunks_of_the_token_budget() -> None:
    setup = setup_of("--max-num-batched-tokens", "128", "--max-num-seqs", "8")
    assert steps(setup, [sequence(prompt=300, tokens=1)]) == [(128, 0), (128, 0), (44, 0)]


def test_decoding_sequences_are_served_before_prefill_gets_the_rest_of_the_budget() -> None:
    setup = setup_of("--max-num-batched-tokens", "64", "--max-num-seqs", "8", k=7)
    first, second = sequence(prompt=60, tokens=2), sequence(prompt=100, tokens=1, first=500)
    assert steps(setup, [first, second]) == [(64, 0), (56, 8), (40, 0)]


def test_requests_of_the_same_step_share_their_prefix() -> None:
    first, second = sequence(prompt=60, tokens=1), sequence(prompt=100, tokens=1)
    assert steps(setup_of(), [first, second]) == [(60 + 100 - 48, 0)]
    assert second.cached == 48


def test_a_long_prefill_threshold_limits_chunks() -> None:
    setup = setup_of("--long-prefill-token-threshold", "16")
    assert steps(setup, [sequence(prompt=40, tokens=1)]) == [(16, 0), (16, 0), (8, 0)]


def test_max_num_seqs_limits_the_batch() -> None:
    result = simulate_closed_loop(setup_of("--max-num-seqs", "2"), bodies(8), 8)
    assert result.mean_running == pytest.approx(2.0)


def test_closed_loop_keeps_its_concurrency_running() -> None:
    result = simulate_closed_loop(setup_of(), bodies(64), 8)
    assert result.mean_running == pytest.approx(8.0, abs=0.1)


def test_throughput_grows_by_the_acceptance_length() -> None:
    plain = simulate_closed_loop(setup_of(), bodies(20, tokens=256), 1)
    drafted = simulate_closed_loop(setup_of(k=7), bodies(20, tokens=256), 1)
    assert drafted.acceptance_length is not None
    assert drafted.output_tok_s / plain.output_tok_s == pytest.approx(drafted.acceptance_length, rel=0.03)


def test_counters_agree_with_each_other() -> None:
    counts = simulate_closed_loop(setup_of(k=7), bodies(10), 4).counts
    assert counts.draft_tokens == 7 * counts.drafts
    assert counts.accepted_tokens == sum(counts.accepted_at)
    assert counts.accepted_at == sorted(counts.accepted_at, reverse=True)


def texts(result: OfflineResult) -> list[str]:
    return [item.answer.text(0, item.emitted) for item in result.sequences]


@pytest.mark.parametrize("k", [1, 3, 7, 15])
def test_greedy_text_is_the_same_with_and_without_speculation(k: int) -> None:
    calibration = dataclasses.replace(FLAT, kinds=(Kind(output_tokens=50),))
    requests = [{"prompt": f"request number {index}", "max_tokens": 90, "temperature": 0} for index in range(12)]
    plain = simulate_closed_loop(setup_of(calibration=calibration), requests, 4)
    drafted = simulate_closed_loop(setup_of(k=k, calibration=calibration), requests, 3)
    assert texts(plain) == texts(drafted)
    assert len({item.emitted for item in plain.sequences}) > 3


def test_a_short_cache_preempts_and_still_answers_everything() -> None:
    tight = setup_of("--num-gpu-blocks-override", "40", "--max-model-len", "600", k=7)
    roomy = setup_of("--max-model-len", "600", k=7)
    requests = bodies(8, tokens=100, prompt=100)
    short = simulate_closed_loop(tight, requests, 8)
    assert short.counts.preemptions > 0
    assert short.output_tokens == 800
    assert texts(short) == texts(simulate_closed_loop(roomy, requests, 8))
    assert simulate_closed_loop(roomy, requests, 8).counts.preemptions == 0


def test_a_sequence_of_the_largest_length_fits_a_cache_of_just_that_size() -> None:
    setup = setup_of("--num-gpu-blocks-override", "39", "--max-model-len", "600", k=15)
    assert simulate_closed_loop(setup, bodies(3, tokens=560), 3).output_tokens == 3 * 560


def test_no_block_is_lost_by_finishing_preempting_or_aborting() -> None:
    setup = setup_of("--num-gpu-blocks-override", "40", "--max-model-len", "600", k=7)
    pool = new_pool(setup)
    scheduler = Scheduler(setup.limits, pool)
    reader = RequestReader(setup, wrong_output=False)
    sequences = [reader.read(body, chat=False).sequence for body in bodies(8, tokens=100, prompt=100)]
    for item in sequences:
        scheduler.add(item)
    for number in range(30):
        step = scheduler.plan(0.0)
        assert step is not None
        if number in (3, 9):
            scheduler.abort(scheduler.running[0])
            scheduler.abort(scheduler.waiting[-1])
        scheduler.commit(step, 0.0)
    while scheduler.busy:
        step = scheduler.plan(0.0)
        assert step is not None
        scheduler.commit(step, 0.0)
    assert pool.free == pool.usable
    assert sum(item.aborted for item in sequences) == 4


def test_lookups_are_counted_only_where_prefixes_are_cached() -> None:
    requests = [*bodies(1), *bodies(1)]
    cached = simulate_closed_loop(setup_of(), requests, 1).counts
    uncached = simulate_closed_loop(setup_of("--no-enable-prefix-caching"), requests, 1).counts
    assert (cached.cache_queries, cached.cache_hits) == (80, 32)
    assert (uncached.cache_queries, uncached.cache_hits) == (0, 0)


def test_a_batch_size_schedule_lowers_the_drafts_of_large_batches() -> None:
    limits = Limits(
        max_sequences=64, max_step_tokens=999, method="dflash", draft_tokens=7, schedule=((1, 4, 15), (9, 64, 0))
    )
    assert [limits.drafts(batch) for batch in (1, 4, 5, 9, 64, 99)] == [7, 7, 7, 0, 0, 0]


def test_multi_turn_prompts_hit_the_cache_with_the_answer_of_the_turn_before() -> None:
    setup = setup_of("--block-size", "16")
    first = {
        "messages": [{"role": "user", "content": "tell me about it " * 8}],
        "max_tokens": 80,
        "temperature": 0,
        "ignore_eos": True,
    }
    answer = texts(simulate_closed_loop(setup, [first], 1))[0]
    turns = [*first["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": "more"}]  # type: ignore[misc] # a list
    result = simulate_closed_loop(setup, [first, {**first, "messages": turns}], 1)
    opening, following = (item for item in result.sequences)
    assert following.cached >= len(opening.prompt) + 80 - 16
    assert result.counts.cache_hits == following.cached


# Output tokens/s of a real vLLM 0.32 on two CPU cores: deep pair, greedy, 128 tokens out, concurrency 1, 8, 32.
MEASURED = {0: (108, 650, 1444), 3: (189, 852, 1462), 7: (233, 897, 1188), 11: (243, 842, 1044), 15: (355, 1193, 1501)}
LENGTHS = {3: 2.42, 7: 3.21, 11: 3.47, 15: 5.42}


@pytest.mark.parametrize("k", MEASURED)
def test_cpu_demo_calibration_reproduces_the_measured_table(k: int) -> None:
    setup = setup_of("--block-size", "32", k=k, calibration=load_calibration("cpu-demo"))
    results = [simulate_closed_loop(setup, bodies(max(24, 4 * c), tokens=128, prompt=60), c) for c in (1, 8, 32)]
    assert [result.output_tok_s for result in results] == pytest.approx(MEASURED[k], rel=0.08)
    if k:
        assert results[2].acceptance_length == pytest.approx(LENGTHS[k], rel=0.05)


def test_published_calibration_has_the_published_shape() -> None:
    setup = setup_of(
        "--tensor-parallel-size", "4", "--kv-cache-dtype", "fp8", k=7, calibration=load_calibration("published")
    )
    loads = ((1, 24), (8, 40), (52, 208))
    results = [simulate_closed_loop(setup, bodies(count, tokens=256, prompt=64), load) for load, count in loads]
    assert [result.output_tok_s for result in results] == pytest.approx([120, 588, 704], rel=0.1)
    assert results[0].acceptance_length == pytest.approx(3.91, rel=0.03)


def test_published_calibration_loses_to_the_block_drop_what_was_published() -> None:
    flags = ("--tensor-parallel-size", "4", "--kv-cache-dtype", "fp8")
    requests = [
        {"prompt": [*range(3400), *range(i, i + 60)], "max_tokens": 64, "temperature": 0, "ignore_eos": True}
        for i in range(10_000, 14_000, 100)
    ]
    calibration = load_calibration("published")
    dropped = simulate_closed_loop(setup_of(*flags, k=7, calibration=calibration), requests, 1)
    kept = setup_of(*flags, k=7, calibration=calibration, disable_eagle_block_drop=True)
    assert dropped.output_tok_s / simulate_closed_loop(kept, requests, 1).output_tok_s - 1 == pytest.approx(
        -0.37, rel=0.1
    )
