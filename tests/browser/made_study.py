"""A study of any size in the real store's files, without an engine: values follow a simple law with noise.

Names come from the caller, so that a test can plant what must not become script.
"""

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from search_spaces import Scalar, ServeConfig
from tuner.config import TuneConfig
from tuner.records import (
    BlockValue,
    Effect,
    Failure,
    Measurement,
    OutputCheck,
    Phase,
    Provenance,
    Recommendation,
    TrialPlan,
    TrialRecord,
)
from tuner.request_times import RequestTimes
from tuner.store import Store

LOADS = (1, 2, 4, 8)
BLOCKS = 4
REQUESTS = 48
BEGAN = datetime(2026, 11, 29, 8, tzinfo=UTC)


def make_study(
    out: Path, *, profiles: tuple[str, ...], trials: int, loads: tuple[int, ...] = LOADS, failure: str = "out of memory"
) -> Store:
    """Writes a finished study: a search of `trials` launches and three rounds of confirmation."""
    store = Store.create(
        TuneConfig(
            workload=Path("api_traffic.jsonl"),
            model="target",
            draft="draft",
            engine_argv=("vllm", "serve"),
            load=f"concurrency={','.join(map(str, loads))}",
            slo=("e2e_p90=900ms",),
            trials=trials,
            study="made",
            out=out,
        )
    )
    chance = random.Random(0)  # noqa: S311 - made-up figures, not secrets
    conditions = tuple(f"{profile}/c{load}" for profile in profiles for load in loads)
    store.write_provenance(_provenance())
    for number in range(trials):
        plan = _plan(number, "baseline" if number == 0 else "search", _config(number, chance), conditions)
        _write(store, plan, chance, failure)
    best = _serve_config({"method": "dflash", "num_speculative_tokens": 7})
    for number in range(trials, trials + 6):
        plan = _plan(number, "confirm", best if (number - trials) % 2 else _serve_config({}), conditions)
        _write(store, plan, chance, failure)
    records = store.records()
    for condition in conditions:
        store.write_recommendation(_answer(condition, best, records))
    return store


def _config(number: int, chance: random.Random) -> ServeConfig:
    if number == 0:
        return _serve_config({})
    if number == 1:
        return _serve_config({"prefix_caching": False})
    values: dict[str, Scalar] = {"method": "dflash", "num_speculative_tokens": 7}
    if number > 3:
        values["num_speculative_tokens"] = chance.choice((1, 3, 5, 7, 9, 11, 15))
        values["max_num_batched_tokens"] = chance.choice((2048, 4096, 8192))
        values["kv_block_size"] = chance.choice((16, 32, 64))
    if number == 3 or (number > 3 and chance.random() < 0.4):
        values["prefix_caching"] = False
    return _serve_config(values)


def _serve_config(identity: dict[str, Scalar]) -> ServeConfig:
    tuned: dict[str, object] = {}
    if "method" in identity:
        speculative = {"method": identity["method"], "num_speculative_tokens": identity["num_speculative_tokens"]}
        tuned["speculative-config"] = {**speculative, "model": "draft"}
    tuned |= {"enable-prefix-caching": False} if identity.get("prefix_caching") is False else {}
    flags = {"max_num_batched_tokens": "max-num-batched-tokens", "kv_block_size": "block-size"}
    tuned |= {flag: identity[name] for name, flag in flags.items() if name in identity}
    document = {"model": "target", "values": {"method": "none", **identity}, "fixed_args": {}, "tuned_args": tuned}
    return ServeConfig.model_validate({**document, "identity": identity})


def _plan(number: int, phase: Phase, config: ServeConfig, conditions: tuple[str, ...]) -> TrialPlan:
    return TrialPlan(
        number=number,
        step=f"{phase}/{number}",
        phase=phase,
        asked_by=None,
        temperature=None,
        serve_config=config,
        conditions=conditions,
    )


def _write(store: Store, plan: TrialPlan, chance: random.Random, failure: str) -> None:
    number, phase, conditions = plan.number, plan.phase, plan.conditions
    store.write_plan(plan)
    broken = phase == "search" and number % 23 == 22
    measured = {} if broken else {c: _measure(c, plan.serve_config, phase, chance) for c in conditions}
    for condition, measurement in measured.items():
        store.write_measurement(number, measurement)
        if phase == "confirm":
            store.write_request_times(number, _times(condition, measurement, chance))
    began = BEGAN + timedelta(minutes=2 * number)
    store.write_record(
        TrialRecord(
            plan=plan,
            status="rejected" if broken else "measured",
            failure=Failure(kind="oom", message=failure, infrastructure=False) if broken else None,
            engine_version="0.32.0",
            started_at=began.isoformat(),
            ended_at=(began + timedelta(minutes=2)).isoformat(),
            seconds={"engine start": 60.0, "replay": 60.0},
            measurements=measured,
        )
    )


def _measure(condition: str, config: ServeConfig, phase: Phase, chance: random.Random) -> Measurement:
    """Throughput by a law that has a crossover: drafting costs more the more requests run at once."""
    load = int(condition.rpartition("/c")[2])
    k = int(config.identity.get("num_speculative_tokens") or 0)
    curve = [0.85 ** (n + 1) for n in range(k)]
    length, step_s = 1 + sum(curve), 0.012 * (1 + 0.03 * load) * (1 + 0.10 * (k > 0) + 0.006 * k * load)
    cached = config.identity.get("prefix_caching") is not False
    tok_s = [chance.gauss(1, 0.02) * load * length / step_s * (1.1 if cached else 1.0) for _ in range(BLOCKS)]
    mean = sum(tok_s) / BLOCKS
    tpot_s = load / mean
    metrics = {
        "output_tok_s": mean, "in_flight_mean": float(load), "running_mean": load * 0.97, "requests": float(REQUESTS),
        "failed": 0.0, "prompt_tokens": 400.0 * REQUESTS, "completion_tokens": 64.0 * REQUESTS, "preemptions": 0.0,
        "prefix_hit_rate": 0.5 if cached else 0.0, "prefix_hit_tokens": 200.0 * REQUESTS * cached,
        "kv_block_tokens": 16.0, "goodput_rate": mean / 64, "goodput_share": 1.0,
    }  # fmt: skip
    latencies = {"ttft": 0.08 + 0.01 * load, "tpot": tpot_s, "e2e": 0.08 + 64 * tpot_s}
    for name, value_s in latencies.items():
        for statistic, factor in (("mean", 1.0), ("p50", 0.98), ("p90", 1.2), ("p99", 1.4)):
            metrics[f"{name}_{statistic}_s"] = value_s * factor
    if k:
        drafts = round(64 * REQUESTS / length)
        accepted = drafts * (length - 1)
        metrics |= {"drafts": float(drafts), "draft_tokens": float(drafts * k), "accepted_tokens": accepted}
        metrics |= {"acceptance_rate": accepted / (drafts * k), "acceptance_length": length}
        metrics |= {f"accepted_at_{n:02d}": share for n, share in enumerate(curve, start=1)}
    return Measurement(
        condition=condition,
        part="held_out" if phase == "confirm" else "search",
        temperature=None,
        load=f"concurrency={load}",
        started_at=BEGAN.isoformat(),
        replay_s=64 * REQUESTS / mean,
        attempts=1,
        problems=(),
        metrics=metrics,
        blocks=tuple(BlockValue(block=n, metrics={"output_tok_s": value}) for n, value in enumerate(tok_s)),
        greedy_outputs={},
    )


def _times(condition: str, measurement: Measurement, chance: random.Random) -> RequestTimes:
    """A closed loop: as many requests in flight as the load says, each as long as the measurement's E2E."""
    load, free = int(measurement.metrics["in_flight_mean"]), [0.0] * int(measurement.metrics["in_flight_mean"])
    sent, ends, firsts = [], [], []
    for number in range(REQUESTS):
        lane = number % load
        start, length_s = free[lane], measurement.metrics["e2e_mean_s"] * math.exp(chance.gauss(0, 0.3))
        free[lane] = start + length_s
        sent.append(round(start, 4))
        firsts.append(round(start + length_s * 0.2, 4))
        ends.append(round(start + length_s, 4))
    return RequestTimes(
        condition=condition, block=tuple(n % BLOCKS for n in range(REQUESTS)), sent_s=tuple(sent),
        first_token_s=tuple(firsts), last_token_s=tuple(ends), end_s=tuple(ends), prompt_tokens=(400,) * REQUESTS,
        cached_tokens=(200,) * REQUESTS, completion_tokens=(64,) * REQUESTS, error=(None,) * REQUESTS,
    )  # fmt: skip


def _answer(condition: str, best: ServeConfig, records: list[TrialRecord]) -> Recommendation:
    own = [r for r in records if r.plan.phase == "confirm"]
    values = {
        config: [r.measurements[condition].metrics for r in own if r.plan.serve_config.id == config]
        for config in (best.id, own[0].plan.serve_config.id)
    }
    value, base = (sum(m["output_tok_s"] for m in rows) / len(rows) for rows in values.values())
    ratio = value / base
    changes = ratio > 1
    return Recommendation(
        condition=condition,
        profile=condition.rpartition("/")[0],
        verdict="change" if changes else "no reliable gain",
        serve_config=best if changes else own[0].plan.serve_config,
        baseline=own[0].plan.serve_config,
        objective="output_tok_s",
        value=value if changes else base,
        baseline_value=base,
        effect=Effect(gain=ratio, low=ratio * 0.96, high=ratio * 1.04, confidence=0.95, pairs=12) if changes else None,
        best_candidate=best.label(),
        output_check=OutputCheck(compared=24, identical=24, calibration_identical=1.0, verdict="identical"),
        slo_met=True,
        reason=f"{value:.0f} instead of {base:.0f} tokens per second",
        caveats=(),
        trials=tuple(r.plan.number for r in own),
        metrics=values[best.id if changes else own[0].plan.serve_config.id][0],
        simulated=False,
    )


def _provenance() -> Provenance:
    return Provenance(
        created_at=BEGAN.isoformat(), tuner_version="0.1.0", python="3.11.7", host="Linux 6.1", cpu="AMD EPYC, 2 cores",
        memory_gib=24.0, gpus=(), engine_version="0.32.0", workload_digest="sha256:" + "0" * 64,
    )  # fmt: skip
