"""One measurement: a condition replayed on a running engine, with the checks that make its numbers usable.

Warm-up and measurement see different prefix-cache content: the warm-up carries a cache salt, the cache is reset, and
where the reset is refused the measurement carries a salt of its own. Whether the load was what was asked for is
judged here; a measurement that was not is repeated, and stays marked invalid when it is no better.
"""

import dataclasses
import hashlib
import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from runners import Engine, EngineMetrics
from tuner.breakdown import REPLAY, WARM_UP, Breakdown
from tuner.conditions import Condition
from tuner.counters import counter_metrics
from tuner.gpus import Observation, unobserved
from tuner.objective import Slo
from tuner.records import BlockValue, Measurement
from tuner.request_times import RequestTimes, request_times
from workloads import Block, Load, ReplayMetrics, ReplayResult, Target, client_problems, flat_metrics, replay, summarise

ATTEMPTS = 2
WARM_UP_TOKENS = 32
# The engine sees a request later and drops it earlier than the client by HTTP and scheduling; below this share of the
# client's request-seconds it did not hold the requests that the client had in flight.
MIN_ENGINE_SHARE = 0.7


async def measure(
    engine: Engine,
    condition: Condition,
    blocks: Sequence[Block],
    *,
    part: Literal["search", "held_out"],
    temperature: float | None,
    slos: Sequence[Slo],
    timeout_s: float,
    breakdown: Breakdown,
    seed: int = 0,
    client_processes: int = 1,
    observe: Callable[[], Observation] = unobserved,
    keep: Callable[[RequestTimes], None] | None = None,
) -> Measurement:
    """Warms the engine up, replays the blocks and reads the counters; `keep` is given the times of single requests.

    Raises:
        RunnerError: the engine died, or its metrics cannot be read.
    """
    target = Target(base_url=engine.base_url, api_key=engine.api_key, model=engine.model)
    with breakdown.activity(WARM_UP):
        await _warm_up(target, condition, blocks, temperature=temperature)
    for attempt in itertools.count(1):
        with breakdown.activity(REPLAY):
            salt = None if await engine.reset_prefix_cache() else f"measurement-{secrets.token_hex(8)}"
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            before = await engine.scrape()
            with observe() as observed:
                result = await replay(
                    target,
                    blocks,
                    condition.load,
                    temperature=temperature,
                    seed=None,  # recorded seeds are kept; others would change how the engine samples, and how fast
                    arrival_seed=seed,
                    client_processes=client_processes,
                    cache_salt=salt,
                    deadline_s=timeout_s,
                    keep_text=True,
                )
            counters = (await engine.drain()).since(before)
        summary = summarise(result, slo=_per_request_limits(slos) or None)
        problems = [*_problems(condition, summary, counters, result), *observed.problems]
        if not problems or attempt == ATTEMPTS:
            break
    if keep is not None:
        keep(request_times(condition.key, result))
    return Measurement(
        condition=condition.key,
        part=part,
        temperature=temperature,
        load=str(condition.load),
        started_at=started_at,
        replay_s=result.duration_s,
        attempts=attempt,
        problems=tuple(problems),
        metrics=_metrics(summary, counters, _request_s(result)) | _kv_block(before.cache_config) | observed.metrics,
        blocks=tuple(_block_values(summary)),
        greedy_outputs=_greedy_outputs(result, blocks, temperature),
    )


async def _warm_up(target: Target, condition: Condition, blocks: Sequence[Block], *, temperature: float | None) -> None:
    """Short requests at the condition's own concurrency, so that nothing is compiled or allocated while measuring."""
    width = int(condition.load.value) if condition.load.kind == "concurrency" else 4
    requests = list(itertools.islice(itertools.chain.from_iterable(b.requests for b in blocks), max(2, width)))
    short = tuple(dataclasses.replace(r, session=None, body={**r.body, **_output_limit(r.body)}) for r in requests)
    load = Load("concurrency", float(max(1, width)))
    block = Block(profile=condition.profile, index=0, requests=short)
    await replay(target, [block], load, temperature=temperature, seed=None, cache_salt="warm-up")


def _output_limit(body: Mapping[str, object]) -> dict[str, int]:
    name = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    return {name: WARM_UP_TOKENS}


def _problems(condition: Condition, summary: ReplayMetrics, counters: EngineMetrics, result: ReplayResult) -> list[str]:
    """Why the numbers may not be used; each a sentence with the figure."""
    problems = client_problems(summary, condition.load, result.outcomes)
    held = _at_full_load(counters.queue_time_s + counters.inference_time_s, summary, _request_s(result))
    if not summary.failed and held is not None and held < MIN_ENGINE_SHARE * (summary.in_flight_mean or 0):
        problems.append(
            f"the engine held {held:.2f} requests on average, the client had {summary.in_flight_mean:.2f} in flight"
        )
    return problems


def _request_s(result: ReplayResult) -> float:
    """Time that the finished requests spent between sending and end, summed."""
    return sum(o.e2e_s for o in result.outcomes if o.error is None and o.e2e_s is not None)


def _at_full_load(engine_s: float, summary: ReplayMetrics, client_s: float) -> float | None:
    """Mean number of requests in a state of the engine while the load was at its full; None when nothing finished.

    Little's law on both sides: request-seconds by the engine's clock over those by the client's are the share of the
    requests in flight that were in that state. Both sums run over whole requests, so ramp-up and ramp-down do not
    matter.

    Args:
        engine_s: Time that the requests spent in that state, summed.
        summary: Has the client's mean at full load.
        client_s: Time that the requests took for the client, summed.
    """
    return summary.in_flight_mean * engine_s / client_s if client_s and summary.in_flight_mean else None


def _metrics(summary: ReplayMetrics, counters: EngineMetrics, client_s: float) -> dict[str, float]:
    """Flat metrics with units in their names; what was not measured is absent."""
    values: dict[str, float | None] = {
        "running_mean": _at_full_load(counters.inference_time_s, summary, client_s),
        "waiting_mean": _at_full_load(counters.queue_time_s, summary, client_s),
    }
    known = {name: value for name, value in values.items() if value is not None}
    return flat_metrics(summary) | counter_metrics(counters) | known


def _kv_block(cache_config: Mapping[str, str]) -> dict[str, float]:
    """The engine's own KV block, which a hybrid model makes longer than was asked for; absent where it does not say."""
    tokens = cache_config.get("block_size", "")
    return {"kv_block_tokens": float(tokens)} if tokens.isdigit() else {}


def _block_values(summary: ReplayMetrics) -> list[BlockValue]:
    rows = []
    for block in summary.blocks:
        values: dict[str, float] = {"requests": block.requests, "failed": block.failed, "window_s": block.window_s}
        if block.own_tok_s is not None:
            # Of the block's own requests, so that a block means the same requests in every configuration.
            values["output_tok_s"] = block.own_tok_s
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            distribution = getattr(block, name)
            if distribution is not None:
                for statistic in ("mean", "p50", "p90", "p99"):
                    values[f"{name.removesuffix('_s')}_{statistic}_s"] = getattr(distribution, statistic)
        rows.append(BlockValue(block=block.block, metrics=values))
    return rows


def _greedy_outputs(result: ReplayResult, blocks: Sequence[Block], temperature: float | None) -> dict[str, str]:
    """Hash of each output sent at temperature 0; the text itself is not kept."""
    recorded = {r.id: r.body.get("temperature") for b in blocks for r in b.requests}
    return {
        o.request_id: hashlib.sha256(o.text.encode()).hexdigest()[:16]
        for o in result.outcomes
        if o.error is None
        and o.text is not None
        and (recorded[o.request_id] if temperature is None else temperature) == 0
    }


def _per_request_limits(slos: Sequence[Slo]) -> dict[str, float]:
    """Limits that goodput can judge per request: whatever the statistic, one request has one value."""
    limits: dict[str, float] = {}
    for slo in slos:
        name = f"{slo.metric.split('_')[0]}_s"
        if name in {"ttft_s", "tpot_s", "e2e_s"}:
            limits[name] = min(slo.limit_s, limits.get(name, slo.limit_s))
    return limits
