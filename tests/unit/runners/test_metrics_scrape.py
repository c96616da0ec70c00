"""Scrape and EngineMetrics: from the text of /metrics to sums and differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runners import EngineMetrics, MetricsError, Scrape

REAL = Path(__file__).with_name("metrics")
BASE = """
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0"} 100.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0"} 50.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 0.0
"""


def counters(**values: float) -> str:
    return "".join(
        f'# TYPE vllm:{name} counter\nvllm:{name}_total{{engine="0"}} {value}\n' for name, value in values.items()
    )


def per_position(*values: float, engine: int = 0) -> str:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos"
    lines = [f'{name}_total{{engine="{engine}",position="{k}"}} {value}' for k, value in enumerate(values)]
    return "\n".join([f"# TYPE {name} counter", *lines, ""])


NOTHING = EngineMetrics(
    drafts=0,
    draft_tokens=0,
    accepted_tokens=0,
    accepted_per_position=(),
    prefix_queries=0,
    prefix_hits=0,
    preemptions=0,
    prompt_tokens=0,
    generation_tokens=0,
    queue_time_s=0.0,
    inference_time_s=0.0,
    e2e_time_s=0.0,
    finished=0,
    duration_s=1.0,
)


def test_a_window_is_the_difference_of_two_scrapes() -> None:
    early = Scrape.parse(BASE + counters(spec_decode_num_drafts=10, spec_decode_num_accepted_tokens=15), at_s=1.0)
    late_text = BASE.replace("50.0", "90.0") + counters(spec_decode_num_drafts=30, spec_decode_num_accepted_tokens=75)
    window = Scrape.parse(late_text, at_s=3.0).since(early)
    assert (window.drafts, window.accepted_tokens, window.generation_tokens, window.duration_s) == (20, 60, 40, 2.0)
    assert window.acceptance_length == 4.0
    assert window == Scrape.delta(early, Scrape.parse(late_text, at_s=3.0))


def test_counters_are_summed_over_engines_and_labels() -> None:
    text = (
        BASE
        + 'vllm:prompt_tokens_total{engine="1"} 11.0\n'
        + "# TYPE vllm:request_success counter\n"
        + 'vllm:request_success_total{engine="0",finished_reason="stop"} 2\n'
        + 'vllm:request_success_total{engine="0",finished_reason="length"} 3\n'
        + 'vllm:request_success_total{engine="1",finished_reason="abort"} 4\n'
    )
    scrape = Scrape.parse(text, at_s=0.0)
    assert (scrape.counters["prompt_tokens"], scrape.counters["finished"]) == (111, 9)


def test_positions_are_summed_over_engines_and_ordered_by_number() -> None:
    twelve = tuple(float(20 - k) for k in range(12))
    scrape = Scrape.parse(BASE + per_position(*twelve) + per_position(1, 1, engine=1), at_s=0.0)
    assert scrape.accepted_per_position == (21, 20, *twelve[2:])


def test_positions_that_appear_within_the_window_count_from_zero() -> None:
    early = Scrape.parse(BASE, at_s=0.0)
    late = Scrape.parse(BASE + counters(spec_decode_num_drafts=10) + per_position(8, 4), at_s=1.0)
    window = late.since(early)
    assert window.accepted_per_position == (8, 4)
    assert window.position_acceptance == (0.8, 0.4)


def test_a_counter_that_falls_means_another_engine() -> None:
    early = Scrape.parse(BASE, at_s=0.0)
    late = Scrape.parse(BASE.replace("50.0", "10.0"), at_s=1.0)
    with pytest.raises(MetricsError, match=r"generation_tokens_total fell by 40 .* restarted"):
        late.since(early)


def test_scrapes_in_the_wrong_order_are_refused() -> None:
    scrape = Scrape.parse(BASE, at_s=1.0)
    with pytest.raises(MetricsError, match="window"):
        scrape.since(scrape)


@pytest.mark.parametrize("text", ["", "<html>not found</html>", "# TYPE process_cpu_seconds counter\n"])
def test_what_is_not_vllms_is_refused(text: str) -> None:
    with pytest.raises(MetricsError):
        Scrape.parse(text, at_s=0.0)


def test_without_drafts_there_is_no_acceptance() -> None:
    window = NOTHING
    assert (window.acceptance_rate, window.acceptance_length, window.position_acceptance) == (None, None, ())
    assert window.prefix_hit_rate is None


def test_rates_follow_their_definitions() -> None:
    window = replace(NOTHING, drafts=10, draft_tokens=70, accepted_tokens=35, prefix_queries=200, prefix_hits=50)
    assert (window.acceptance_rate, window.acceptance_length, window.prefix_hit_rate) == (0.5, 4.5, 0.25)


def test_mean_concurrency_follows_littles_law() -> None:
    window = replace(NOTHING, inference_time_s=16.0, queue_time_s=4.0, duration_s=2.0)
    assert window.mean_running == 8.0


def test_idle_means_nothing_running_and_nothing_waiting() -> None:
    waiting = '# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine="0"} 1.0\n'
    assert Scrape.parse(BASE, at_s=0.0).idle
    assert not Scrape.parse(BASE + waiting, at_s=0.0).idle


def test_a_real_engine_is_understood() -> None:
    """vLLM 0.32 with DFlash, K=7, and a random draft, around 3 requests of 65 tokens in and 30 tokens out."""
    before, after = (Scrape.parse((REAL / f"{when}.txt").read_text(), at_s=0.0) for when in ("before", "after"))
    window = replace(after, at_s=4.0).since(before)
    assert (window.finished, window.prompt_tokens, window.generation_tokens) == (3, 195, 90)
    assert (window.drafts, window.draft_tokens, window.accepted_tokens) == (87, 7 * 87, 0)
    assert (window.accepted_per_position, window.acceptance_length) == ((0,) * 7, 1.0)
    assert (window.prefix_queries, window.prefix_hits) == (195, 64)
    assert 0 < window.queue_time_s < window.inference_time_s < window.e2e_time_s
    assert after.idle
    assert (after.cache_config["block_size"], after.cache_config["num_gpu_blocks"]) == ("32", "10922")
