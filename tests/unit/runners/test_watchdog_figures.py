"""What the watchdog takes from /metrics agrees with what the full parser finds in a real engine's."""

from __future__ import annotations

from pathlib import Path

from runners.prometheus import Scrape
from runners.watchdog import read_progress

METRICS = Path(__file__).with_name("metrics")


def test_the_few_figures_agree_with_the_parser() -> None:
    for name in ("before.txt", "after.txt"):
        text = (METRICS / name).read_text(encoding="utf-8")
        scrape, progress = Scrape.parse(text, at_s=0.0), read_progress(text.encode())
        assert progress.requests == scrape.running + scrape.waiting
        counters = scrape.counters
        assert progress.computed == counters["generation_tokens"] + counters["steps"] + counters["finished"]
        assert counters["steps"] > 0


def test_figures_of_several_engines_are_summed_and_others_are_not_taken() -> None:
    text = (
        b"# HELP vllm:generation_tokens_total x\n"
        b'vllm:generation_tokens_total{engine="0"} 5.0\nvllm:generation_tokens_total{engine="1"} 7.0\n'
        b'vllm:generation_tokens_created{engine="1"} 1e9\n'
        b'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting 1.0\n'
        b'vllm:num_requests_waiting_by_reason{reason="x"} 9.0\n'
    )
    progress = read_progress(text)
    assert (progress.requests, progress.computed) == (3.0, 12.0)
