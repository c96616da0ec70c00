"""What an engine counted between two moments: parsed /metrics and their difference.

Sums every counter over engines and other labels (data parallelism labels each engine), and takes deltas,
because the counters run from the engine's start. Names are those of vLLM 0.28 to 0.33. Pure: no HTTP, no
clock; how one gets the text is the runner's business.

Two quantities follow from Little's law, L = lambda * W: the time-average of the number of requests in a
state is the total time that requests spent in it, divided by the length of the window. The engine observes
its per-request times when a request *ends*, so they hold only for a window in which every request both
began and ended.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from runners.errors import MetricsError

_COUNTERS: Mapping[str, str] = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "queue_time_s": "vllm:request_queue_time_seconds_sum",
    "inference_time_s": "vllm:request_inference_time_seconds_sum",
    "e2e_time_s": "vllm:e2e_request_latency_seconds_sum",
    "finished": "vllm:request_success_total",
    "steps": "vllm:iteration_tokens_total_count",
}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_KV_USAGE = "vllm:kv_cache_usage_perc"
_CACHE_CONFIG = "vllm:cache_config_info"
_POSITION = re.compile(r"[0-9]{1,3}")
# Present from the first scrape on in every release, with and without speculation.
_ALWAYS_THERE = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", _RUNNING)


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What the engine counted in one window.

    Attributes:
        drafts: Verified drafts, each of up to K tokens.
        draft_tokens: Tokens drafted.
        accepted_tokens: Drafted tokens that the target accepted.
        accepted_per_position: Accepted tokens at draft position 1, 2, ...
        prefix_queries: Prompt tokens looked up in the prefix cache.
        prefix_hits: Prompt tokens found there.
        preemptions: Requests thrown out of the KV cache to be computed again.
        prompt_tokens: Prompt tokens of the window.
        generation_tokens: Tokens generated.
        queue_time_s: Sum over finished requests of their time in the waiting queue.
        inference_time_s: Sum over finished requests of their time between first being scheduled and their
            last token.
        e2e_time_s: Sum over finished requests of their time between arrival and last token.
        finished: Requests that ended, for whatever reason.
        duration_s: Length of the window.
    """

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    prompt_tokens: int
    generation_tokens: int
    queue_time_s: float
    inference_time_s: float
    e2e_time_s: float
    finished: int
    duration_s: float

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens; None without drafts."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens per verification step, 1 + accepted / drafts, pooled over requests; None without drafts."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts else None

    @property
    def position_acceptance(self) -> tuple[float, ...]:
        """p_k = accepted at position k / drafts: unconditional, so it can only fall with k; empty without drafts."""
        return tuple(count / self.drafts for count in self.accepted_per_position) if self.drafts else ()

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of looked-up prompt tokens found in the prefix cache; None when nothing was looked up."""
        return self.prefix_hits / self.prefix_queries if self.prefix_queries else None

    @property
    def mean_running(self) -> float:
        """Time-average of the number of running requests (Little's law; the module says when it holds)."""
        return self.inference_time_s / self.duration_s


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of /metrics, summed over engines.

    Attributes:
        at_s: When it was read, on the clock of ``time.perf_counter``.
        counters: Running totals under the field names of ``EngineMetrics``; 0 where the engine does not
            export one.
        accepted_per_position: Running totals by draft position.
        running: Requests being computed now.
        waiting: Requests in the queue now.
        kv_usage: Share of the KV cache in use now, the fullest engine's.
        cache_config: The engine's own view of its cache settings, as strings (``block_size``,
            ``num_gpu_blocks``, ...).
    """

    at_s: float
    counters: Mapping[str, float]
    accepted_per_position: tuple[float, ...]
    running: int
    waiting: int
    kv_usage: float
    cache_config: Mapping[str, str]

    @classmethod
    def parse(cls, text: str, *, at_s: float) -> Scrape:
        """Read the Prometheus text format.

        Raises:
            MetricsError: It is not the text format, or not that of a vLLM engine.
        """
        samples: dict[str, list[Sample]] = defaultdict(list)
        for sample in _vllm_samples(text):
            samples[sample.name].append(sample)
        if missing := [name for name in _ALWAYS_THERE if name not in samples]:
            raise MetricsError(
                f"/metrics does not contain {missing[0]}; the engine must be vLLM, started without --disable-log-stats"
            )
        totals = {name: sum(sample.value for sample in group) for name, group in samples.items()}
        _check_finite(totals)
        return cls(
            at_s=at_s,
            counters={field: totals.get(name, 0.0) for field, name in _COUNTERS.items()},
            accepted_per_position=_by_position(samples.get(_PER_POSITION, [])),
            running=round(totals[_RUNNING]),
            waiting=round(totals.get(_WAITING, 0.0)),
            kv_usage=max((sample.value for sample in samples.get(_KV_USAGE, [])), default=0.0),
            cache_config=dict(samples[_CACHE_CONFIG][0].labels) if samples.get(_CACHE_CONFIG) else {},
        )

    @property
    def idle(self) -> bool:
        """No request is running or waiting."""
        return self.running == 0 and self.waiting == 0

    def since(self, before: Scrape) -> EngineMetrics:
        """Difference to an earlier reading of the same engine.

        Raises:
            MetricsError: A counter ran backwards, or the two readings are not in order.
        """
        duration_s = self.at_s - before.at_s
        if duration_s <= 0:
            raise MetricsError(f"the window is {duration_s:.6f} s long; scrape before and after it, in this order")
        delta = {field: value - before.counters[field] for field, value in self.counters.items()}
        for field, value in delta.items():
            if value < 0:
                raise MetricsError(
                    f"{_COUNTERS[field]} fell by {-value:g} within the window: the engine was restarted or "
                    "is another one, so the measurement must be thrown away"
                )
        return EngineMetrics(
            drafts=round(delta["drafts"]),
            draft_tokens=round(delta["draft_tokens"]),
            accepted_tokens=round(delta["accepted_tokens"]),
            accepted_per_position=_position_delta(before.accepted_per_position, self.accepted_per_position),
            prefix_queries=round(delta["prefix_queries"]),
            prefix_hits=round(delta["prefix_hits"]),
            preemptions=round(delta["preemptions"]),
            prompt_tokens=round(delta["prompt_tokens"]),
            generation_tokens=round(delta["generation_tokens"]),
            queue_time_s=delta["queue_time_s"],
            inference_time_s=delta["inference_time_s"],
            e2e_time_s=delta["e2e_time_s"],
            finished=round(delta["finished"]),
            duration_s=duration_s,
        )

    @staticmethod
    def delta(before: Scrape, after: Scrape) -> EngineMetrics:
        """The same as ``after.since(before)``."""
        return after.since(before)


def _vllm_samples(text: str) -> Iterator[Sample]:
    try:
        for family in text_string_to_metric_families(text):
            if family.name.startswith("vllm:"):
                yield from family.samples
    except (ValueError, LookupError, TypeError) as error:  # the parser says ValueError for some faults only
        first_line = text.strip().partition("\n")[0][:80]
        raise MetricsError(f"/metrics is not in the Prometheus text format ({first_line!r}): {error}") from error


def _check_finite(totals: Mapping[str, float]) -> None:
    """Figures that are no numbers would make every comparison with them false."""
    for name in (*_COUNTERS.values(), _PER_POSITION, _RUNNING, _WAITING, _KV_USAGE):
        if not math.isfinite(totals.get(name, 0.0)):
            raise MetricsError(f"/metrics says that {name} is {totals[name]}; see what answers there")


def _by_position(samples: list[Sample]) -> tuple[float, ...]:
    """Totals by draft position; vLLM counts positions from 0."""
    totals: dict[int, float] = defaultdict(float)
    for sample in samples:
        label = sample.labels.get("position", "")
        if not _POSITION.fullmatch(label):
            raise MetricsError(
                f"/metrics has {_PER_POSITION} at position {label[:20]!r}, which no draft has; see what answers there"
            )
        totals[int(label)] += sample.value
    return tuple(totals[position] for position in range(max(totals, default=-1) + 1))


def _position_delta(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[int, ...]:
    padded = before + (0.0,) * (len(after) - len(before))
    return tuple(round(late - early) for early, late in zip(padded, after, strict=True))
