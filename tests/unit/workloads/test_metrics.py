"""Metrics of hand-made replays, computed by hand in the comments."""

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Load, ReplayResult, RequestOutcome, WorkloadError, summarise
from workloads.windows import block_windows, in_flight_mean, own_times_s


def done(
    block: int,
    sent_s: float,
    chunks: Sequence[tuple[float, int]],
    end_s: float | None = None,
    *,
    scheduled_s: float | None = None,
    error: str | None = None,
    cached: int | None = None,
    estimated: bool = False,
) -> RequestOutcome:
    """An outcome from its times and the running token counts of its events."""
    return RequestOutcome(
        request_id="r",
        block=block,
        scheduled_s=sent_s if scheduled_s is None else scheduled_s,
        sent_s=sent_s,
        first_token_s=chunks[0][0] if chunks else None,
        end_s=(chunks[-1][0] if chunks else sent_s) if end_s is None else end_s,
        chunk_s=array("d", [time_s for time_s, _ in chunks]),
        chunk_tokens=array("l", [tokens for _, tokens in chunks]),
        chunk_tokens_estimated=estimated,
        prompt_tokens=10,
        completion_tokens=chunks[-1][1] if chunks else 0,
        cached_tokens=cached,
        finish_reason=None,
        error=error,
        error_detail=None,
        text=None,
    )


def never_sent(block: int, end_s: float) -> RequestOutcome:
    return RequestOutcome(
        request_id="r",
        block=block,
        scheduled_s=None,
        sent_s=None,
        first_token_s=None,
        end_s=end_s,
        chunk_s=array("d"),
        chunk_tokens=array("l"),
        chunk_tokens_estimated=False,
        prompt_tokens=None,
        completion_tokens=0,
        cached_tokens=None,
        finish_reason=None,
        error="abandoned",
        error_detail=None,
        text=None,
    )


def result(*outcomes: RequestOutcome, load: Load | None = None, duration_s: float = 100.0) -> ReplayResult:
    return ReplayResult(
        outcomes=outcomes,
        duration_s=duration_s,
        load=load or Load("concurrency", 2),
        started_s=0.0,
        send_lag_s=array("d", [0.0 if outcome.sent_s is not None else float("nan") for outcome in outcomes]),
        loop_lag_s=array("d", [0.001, 0.003]),
        client_cpu_s=25.0,
    )


# Concurrency 2, two blocks of two requests:
#   a (block 0)  sent 0, 10 tokens at 2, 20 at 4
#   b (block 0)  sent 0,  6 tokens at 3, 12 at 6
#   c (block 1)  sent 4, 10 tokens at 6, 20 at 8
#   d (block 1)  sent 6,  5 tokens at 7, 30 at 11
A = done(0, 0.0, [(2.0, 10), (4.0, 20)])
B = done(0, 0.0, [(3.0, 6), (6.0, 12)])
C = done(1, 4.0, [(6.0, 10), (8.0, 20)])
D = done(1, 6.0, [(7.0, 5), (11.0, 30)])


def test_windows_of_a_closed_loop() -> None:
    # Block 0 from its first sending (0) to that of block 1 (4). Nothing is left to send after d at 6, which took the
    # place of b; c is the next to complete, at 8, and from then on less is in flight.
    assert block_windows([A, B, C, D], open_loop=False) == {0: (0.0, 4.0), 1: (4.0, 8.0)}


def test_windows_of_an_open_loop_end_with_the_last_completion() -> None:
    assert block_windows([A, B, C, D], open_loop=True) == {0: (0.0, 4.0), 1: (4.0, 11.0)}


def test_at_concurrency_one_the_last_window_ends_with_the_last_completion() -> None:
    one = done(0, 0.0, [(1.0, 1), (2.0, 4)])
    two = done(1, 2.0, [(3.0, 1), (5.0, 6)])
    assert block_windows([one, two], open_loop=False) == {0: (0.0, 2.0), 1: (2.0, 5.0)}


def test_block_throughput_counts_the_tokens_of_whoever_emitted_them() -> None:
    metrics = summarise(result(A, B, C, D))
    first, second = metrics.blocks
    # [0, 4): 10 (a, 2 s) + 6 (b, 3 s); a's other 10 arrive at 4, the instant at which block 1 begins.
    assert (first.window_s, first.output_tok_s) == (4.0, 16 / 4)
    # [4, 8]: 10 (a, 4 s) + 6 (b, 6 s) + 10 (c, 6 s) + 5 (d, 7 s) + 10 (c, 8 s); d's last 25 come after full load.
    assert (second.window_s, second.output_tok_s) == (4.0, 41 / 4)
    assert (metrics.window_s, metrics.output_tok_s) == (8.0, 57 / 8)
    # a, b and c completed in those 8 s.
    assert metrics.request_rate == 3 / 8


def test_own_time_divides_each_moment_among_the_requests_in_flight() -> None:
    # Two in flight throughout [0, 8]: a 4 s, b 6 s, c 4 s and d 2 s of it, each at half.
    assert own_times_s([A, B, C, D], (0.0, 8.0)) == {0: 5.0, 1: 3.0}
    # Alone from 8 to 11, d has all of that.
    assert own_times_s([A, B, C, D], (0.0, 11.0)) == {0: 5.0, 1: 6.0}


def test_own_throughput_is_about_the_block_s_own_requests() -> None:
    first, second = summarise(result(A, B, C, D)).blocks
    # a and b bring 32 tokens; c and d bring 25 until the load falls at 8.
    assert (first.own_s, first.own_tok_s) == (5.0, 32 / 5)
    assert (second.own_s, second.own_tok_s) == (3.0, 25 / 3)


def test_own_throughput_has_meaning_where_blocks_start_together() -> None:
    # Four requests in flight at once, one to a block: no block has a window, each has a quarter of the time.
    together = [done(block, 0.0, [(1.0, 1), (4.0, 10 * (block + 1))]) for block in range(4)]
    metrics = summarise(result(*together))
    assert [block.own_tok_s for block in metrics.blocks] == [10.0, 20.0, 30.0, 40.0]
    assert metrics.output_tok_s == 100 / 4


def test_the_load_of_a_closed_loop_falls_when_a_session_ends_and_none_is_left() -> None:
    # Two sessions: one of three turns, one of one. From 2 on the second worker has nothing to do.
    turns = [done(0, start, [(start + 1, 5), (start + 2, 10)]) for start in (0.0, 2.0, 4.0)]
    assert block_windows([*turns, done(0, 0.0, [(2.0, 10)])], open_loop=False) == {0: (0.0, 2.0)}


def test_latencies_of_a_block_are_those_of_its_own_requests() -> None:
    first, second = summarise(result(A, B, C, D)).blocks
    assert first.ttft_s is not None
    assert second.ttft_s is not None
    assert second.tpot_s is not None
    assert second.e2e_s is not None
    assert (first.ttft_s.count, first.ttft_s.mean, first.ttft_s.p50, first.ttft_s.maximum) == (2, 2.5, 2.5, 3.0)
    assert (second.ttft_s.count, second.ttft_s.mean) == (2, 1.5)
    # c: 2 s for 19 tokens; d: 4 s for 29.
    assert pytest.approx((2 / 19 + 4 / 29) / 2) == second.tpot_s.mean
    assert second.e2e_s.mean == 4.5


def test_totals_and_chunks() -> None:
    metrics = summarise(result(A, B, C, D))
    assert (
        metrics.requests,
        metrics.completed,
        metrics.failed,
        metrics.errors,
        metrics.prompt_tokens,
        metrics.completion_tokens,
    ) == (4, 4, 0, {}, 40, 82)
    assert metrics.chunk_gap_s is not None
    # Gaps 2, 3, 2, 4; they bring 10, 6, 10 and 25 tokens.
    assert (metrics.chunk_gap_s.count, metrics.chunk_gap_s.mean, metrics.tokens_per_chunk) == (4, 2.75, 51 / 4)
    assert metrics.client_cpu_share == 0.25
    assert metrics.loop_lag_s is not None
    assert pytest.approx(0.002) == metrics.loop_lag_s.mean


def test_mean_in_flight_is_over_the_windows() -> None:
    # [0, 8]: a 4 s, b 6 s, c 4 s, d 2 of its 5 s.
    assert summarise(result(A, B, C, D)).in_flight_mean == 16 / 8


def test_full_load_lasts_while_the_most_requests_are_in_flight() -> None:
    three = [
        done(0, 0.0, [(5.0, 1)]),
        done(0, 1.0, [(4.0, 1)]),
        done(0, 4.0, [(9.0, 1)]),
        done(0, 5.0, [(7.0, 1)]),
    ]
    # Two in flight from 1 to 7; the places freed at 4 and 5 are taken at once.
    assert summarise(result(*three)).full_load_s == (1.0, 7.0)


def test_full_load_of_an_open_loop_is_the_whole_run() -> None:
    assert summarise(result(A, B, C, D, load=Load("rate", 1))).full_load_s == (0.0, 11.0)


def test_failures_are_counted_by_class_and_kept_out_of_latencies() -> None:
    metrics = summarise(
        result(
            done(0, 0.0, [(1.0, 1), (2.0, 2)]),
            done(0, 0.0, [(50.0, 1)], error="timeout"),
            done(0, 0.0, [], 1.0, error="http_400"),
            done(0, 0.0, [], 1.0, error="http_400"),
            never_sent(1, 60.0),
        )
    )
    assert (
        metrics.requests,
        metrics.completed,
        metrics.failed,
        metrics.errors,
    ) == (5, 1, 4, {"timeout": 1, "http_400": 2, "abandoned": 1})
    assert metrics.ttft_s is not None
    assert (metrics.ttft_s.count, metrics.ttft_s.maximum) == (1, 1.0)
    assert [(block.requests, block.failed) for block in metrics.blocks] == [(4, 3), (1, 1)]
    assert metrics.send_lag_s is not None
    assert metrics.send_lag_s.count == 4


def test_a_block_of_which_nothing_was_sent_has_an_empty_window() -> None:
    block = summarise(result(done(0, 0.0, [(1.0, 1)]), never_sent(1, 60.0))).blocks[1]
    assert (block.window_s, block.output_tok_s, block.ttft_s) == (0.0, None, None)


def test_tokens_of_failed_requests_were_emitted_all_the_same() -> None:
    metrics = summarise(result(done(0, 0.0, [(1.0, 4), (2.0, 8)], error="timeout")))
    assert metrics.output_tok_s == 8 / 2


def test_time_from_the_schedule_is_reported_in_open_loops_only() -> None:
    late = done(0, 3.0, [(4.0, 1)], scheduled_s=1.0)
    opened = summarise(result(late, load=Load("recorded", 1)))
    closed = summarise(result(late))
    assert opened.e2e_scheduled_s is not None
    assert opened.e2e_s is not None
    assert (opened.e2e_scheduled_s.mean, opened.e2e_s.mean, closed.e2e_scheduled_s) == (3.0, 1.0, None)


def test_goodput_needs_every_limit_kept() -> None:
    outcomes = [
        done(0, 0.0, [(1.0, 1), (2.0, 11)]),  # ttft 1, tpot 0.1, e2e 2
        done(0, 0.0, [(1.0, 1), (4.0, 11)]),  # ttft 1, tpot 0.3
        done(0, 0.0, [(3.0, 1), (4.0, 11)]),  # ttft 3, tpot 0.1
        done(0, 0.0, [(0.5, 1)]),  # one token: no tpot to break a limit
        done(0, 0.0, [], 0.1),  # no token at all: judged by its end
        done(0, 0.0, [(1.0, 1), (2.0, 11)], error="timeout"),
    ]
    metrics = summarise(result(*outcomes, duration_s=10.0), slo={"ttft_s": 1.0, "tpot_s": 0.2})
    assert (metrics.goodput_share, metrics.goodput_rate) == (3 / 6, 3 / 10)
    strict = summarise(result(*outcomes, duration_s=10.0), slo={"e2e_s": 0.2})
    assert strict.goodput_share == 1 / 6


def test_without_limits_there_is_no_goodput() -> None:
    metrics = summarise(result(A))
    assert (metrics.goodput_share, metrics.goodput_rate) == (None, None)


def test_a_limit_on_something_else_is_refused_even_if_nothing_completed() -> None:
    with pytest.raises(WorkloadError, match='an SLO on "throughput" cannot be judged per request'):
        summarise(result(never_sent(0, 1.0)), slo={"throughput": 1.0})


def test_cached_tokens_are_unknown_unless_the_server_says() -> None:
    assert None is summarise(result(A, B)).cached_tokens
    assert summarise(result(A, done(0, 0.0, [(1.0, 1)], cached=5))).cached_tokens == 5


def test_one_estimated_answer_marks_the_replay() -> None:
    assert not summarise(result(A, B)).chunk_tokens_estimated
    assert summarise(result(A, done(0, 0.0, [(1.0, 1)], estimated=True))).chunk_tokens_estimated


def test_an_empty_replay_has_no_numbers() -> None:
    metrics = summarise(result())
    assert (
        metrics.requests,
        metrics.output_tok_s,
        metrics.ttft_s,
        metrics.in_flight_mean,
        metrics.full_load_s,
        metrics.blocks,
    ) == (0, None, None, None, None, ())


def test_mean_in_flight_of_an_empty_window_is_unknown() -> None:
    assert None is in_flight_mean([A], (1.0, 1.0))


outcome_lists = st.lists(
    st.builds(
        lambda block, sent_s, gaps_s: done(
            block, sent_s, [(sent_s + sum(gaps_s[: i + 1]), 3 * (i + 1)) for i in range(len(gaps_s))]
        ),
        st.integers(0, 4),
        st.floats(0, 100),
        st.lists(st.floats(0.01, 5), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None)
@given(outcome_lists, st.sampled_from([Load("rate", 1), Load("concurrency", 3)]))
def test_windows_divide_the_run_and_tokens_are_counted_once(outcomes: list[RequestOutcome], load: Load) -> None:
    metrics = summarise(result(*outcomes, load=load))
    windows = sorted(block_windows(outcomes, open_loop=load.is_open_loop).values())
    assert [end for _, end in windows[:-1]] == [start for start, _ in windows[1:]]
    assert pytest.approx(sum(block.window_s for block in metrics.blocks)) == metrics.window_s
    tokens = sum((block.output_tok_s or 0) * block.window_s for block in metrics.blocks)
    assert pytest.approx((metrics.output_tok_s or 0) * metrics.window_s) == tokens
    own_s = sum(block.own_s for block in metrics.blocks)
    assert own_s <= metrics.window_s + 1e-9
    if load.is_open_loop:
        own_tokens = sum((block.own_tok_s or 0) * block.own_s for block in metrics.blocks)
        assert pytest.approx(metrics.completion_tokens) == own_tokens
        assert pytest.approx(metrics.completion_tokens) == tokens
