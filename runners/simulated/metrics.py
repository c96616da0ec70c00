"""Prometheus metrics under vLLM's names, rendered by prometheus_client.

Counters that the scheduler keeps and gauges of its state are read at scrape time; histograms and request counters
are observed as vLLM does: time to first token at the first token, the rest when a request ends. All times are
wall-clock seconds as a client would see them, whatever the time scale. `simulated:` metrics exist in no vLLM: they
say how faithful the simulation was.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from runners.simulated.prefix_cache import BlockPool
from runners.simulated.scheduler import Scheduler
from runners.simulated.sequences import Counts, SequenceState

__all__ = ["Metrics"]

_LATENCY = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_TOKENS = tuple(base * 10**power for power in range(5) for base in (1, 2, 5))
_FINISHED = ("stop", "length", "abort", "error", "repetition")
_SECONDS = {
    "time_to_first_token_seconds": "Time to the first token.",
    "inter_token_latency_seconds": "Time between two chunks of one request, per chunk.",
    "request_time_per_output_token_seconds": "Time per output token of a request after its first.",
    "e2e_request_latency_seconds": "Time from arrival to the last token.",
    "request_queue_time_seconds": "Time in the queue before the first admission.",
    "request_inference_time_seconds": "Time from the first admission to the last token.",
    "request_prefill_time_seconds": "Time from the first admission to the first token.",
    "request_decode_time_seconds": "Time from the first token to the last.",
}
_SIZES = {
    "request_prompt_tokens": "Prompt tokens of a request.",
    "request_generation_tokens": "Generated tokens of a request.",
    "request_params_max_tokens": "The max_tokens that a request asked for.",
    "iteration_tokens_total": "Query tokens of a step.",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """What is observed when a request ends; times are seconds of the engine's wall clock."""

    sequence: SequenceState
    reason: str
    max_tokens: int
    now_s: float


class Metrics:
    """The engine's registry.

    Args:
        model: served model name, the label `model_name`.
        scheduler: whose counters and queues are reported.
        pool: whose usage is reported.
        cache_info: labels of vllm:cache_config_info.
    """

    def __init__(self, model: str, scheduler: Scheduler, pool: BlockPool, cache_info: Mapping[str, str]) -> None:
        self._labels = {"model_name": model, "engine": "0"}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_State(self._labels, scheduler, pool, cache_info))
        names = tuple(self._labels)
        self._histograms: dict[str, Histogram] = {}
        for histograms, buckets in ((_SECONDS, _LATENCY), (_SIZES, _TOKENS)):
            for name, text in histograms.items():
                histogram = Histogram(f"vllm:{name}", text, names, buckets=buckets, registry=self._registry)
                self._histograms[name] = histogram.labels(**self._labels)
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens processed, cached ones included.")
        self.prompt_tokens_cached = self._counter(
            "vllm:prompt_tokens_cached", "Prompt tokens taken from the prefix cache."
        )
        self.generation_tokens = self._counter("vllm:generation_tokens", "Generated tokens.")
        self.lost_time_s = self._counter(
            "simulated:lost_time_seconds", "Wall time by which the simulation fell behind its schedule."
        )
        success = Counter(
            "vllm:request_success", "Requests by finish reason.", (*names, "finished_reason"), registry=self._registry
        )
        self._success = {reason: success.labels(**self._labels, finished_reason=reason) for reason in _FINISHED}

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, tuple(self._labels), registry=self._registry).labels(**self._labels)

    def observe(self, name: str, value: float) -> None:
        """Observe a histogram by its name without the prefix."""
        self._histograms[name].observe(value)

    def finish(self, finished: Finished) -> None:
        """Observe what vLLM observes when a request ends."""
        sequence, now_s = finished.sequence, finished.now_s
        self._success[finished.reason].inc()
        self.observe("e2e_request_latency_seconds", now_s - sequence.queued_s)
        self.observe("request_prompt_tokens", len(sequence.prompt))
        self.observe("request_generation_tokens", sequence.emitted)
        self.observe("request_params_max_tokens", finished.max_tokens)
        if sequence.scheduled_s is None or sequence.first_token_s is None:
            return
        decode_s = now_s - sequence.first_token_s
        self.observe("request_queue_time_seconds", sequence.scheduled_s - sequence.queued_s)
        self.observe("request_inference_time_seconds", now_s - sequence.scheduled_s)
        self.observe("request_prefill_time_seconds", sequence.first_token_s - sequence.scheduled_s)
        self.observe("request_decode_time_seconds", decode_s)
        if sequence.emitted > 1:
            self.observe("request_time_per_output_token_seconds", decode_s / (sequence.emitted - 1))

    def render(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self._registry)


class _State:
    """Collector of what the scheduler and the block pool know."""

    def __init__(
        self, labels: Mapping[str, str], scheduler: Scheduler, pool: BlockPool, info: Mapping[str, str]
    ) -> None:
        self._labels, self._scheduler, self._pool, self._info = labels, scheduler, pool, info

    def collect(self) -> Iterable[Metric]:
        """Families of this moment."""
        counts, waiting = self._scheduler.counts, len(self._scheduler.waiting)
        yield self._gauge("num_requests_running", "Requests in the running batch.", len(self._scheduler.running))
        yield self._gauge("num_requests_waiting", "Requests waiting.", waiting)
        yield self._gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", self._pool.usage)
        yield self._count("num_preemptions", "Preemptions.", counts.preemptions)
        yield self._count("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", counts.cache_queries)
        yield self._count("prefix_cache_hits", "Prompt tokens found in the prefix cache.", counts.cache_hits)
        info = GaugeMetricFamily("vllm:cache_config_info", "The cache configuration.", labels=("engine", *self._info))
        info.add_metric(("0", *self._info.values()), 1)
        yield info
        if counts.accepted_at:
            yield from self._speculation(counts)

    def _speculation(self, counts: Counts) -> Iterable[Metric]:
        yield self._count("spec_decode_num_drafts", "Drafts.", counts.drafts)
        yield self._count("spec_decode_num_draft_tokens", "Drafted tokens.", counts.draft_tokens)
        yield self._count("spec_decode_num_accepted_tokens", "Accepted tokens.", counts.accepted_tokens)
        text = "Accepted tokens per position."
        family = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos", text, labels=(*self._labels, "position")
        )
        for position, accepted in enumerate(counts.accepted_at):
            family.add_metric((*self._labels.values(), str(position)), accepted)
        yield family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=tuple(self._labels))
        family.add_metric(tuple(self._labels.values()), value)
        return family

    def _count(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=tuple(self._labels))
        family.add_metric(tuple(self._labels.values()), value)
        return family
