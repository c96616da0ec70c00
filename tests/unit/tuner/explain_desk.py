"""Studies made on the simulated engine's own scheduler and cost model, without HTTP and without waiting.

A test plants a fault in the calibration or the flags and gets the records that a study would have written.
"""

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runners.simulated.calibration import Calibration, Costs, Draft, Kind, Memory
from runners.simulated.flags import parse_flags
from runners.simulated.offline import OfflineResult, simulate_closed_loop
from runners.simulated.sequences import SequenceState
from runners.simulated.setup import EngineSetup, resolve
from search_spaces import ServeConfig
from tuner.explain import Explanation, explain
from tuner.objective import parse_objective
from tuner.records import BlockValue, Measurement, TrialPlan, TrialRecord

BLOCKS = 4

CLEAN = Calibration(
    name="clean",
    release="0.33.0",
    max_model_len=16384,
    costs=Costs(
        step_s=0.010,
        per_sequence_s=0.00005,
        verify_curve=((1, 0.0), (1024, 0.004)),
        per_prefill_token_s=0.00005,
        draft_pass_s=0.001,
    ),
    draft=Draft(block_size=16),
    memory=Memory(device_bytes=80 * 2**30),
    kinds=(Kind(conditional=(0.85,), temperature_slope=0.05, output_tokens=64, output_sigma=0.3),),
)
"""An engine with nothing wrong: no dropped block, good acceptance, cheap verification, memory enough."""


def calibration(
    *, costs: Mapping[str, Any] | None = None, kind: Mapping[str, Any] | None = None, **changes: Any
) -> Calibration:
    """The clean engine with something changed."""
    fields = {
        "costs": dataclasses.replace(CLEAN.costs, **(costs or {})),
        "kinds": (dataclasses.replace(CLEAN.kinds[0], **(kind or {})),),
        **changes,
    }
    return dataclasses.replace(CLEAN, **fields)


@dataclasses.dataclass(frozen=True)
class Try:
    """One configuration to measure."""

    k: int = 0
    caching: bool = True
    speculative: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    wrong: bool = False

    def config(self) -> ServeConfig:
        tuned: dict[str, Any] = {**self.flags}
        identity: dict[str, Any] = dict(self.flags)
        if not self.caching:
            tuned["enable-prefix-caching"] = identity["prefix_caching"] = False
        if self.k:
            tuned["speculative-config"] = {
                "method": "dflash", "model": "x/dflash", "num_speculative_tokens": self.k, **self.speculative,
            }  # fmt: skip
            identity |= {"method": "dflash", "num_speculative_tokens": self.k, **self.speculative}
        return ServeConfig(model="m", values=identity, fixed_args={}, tuned_args=tuned, identity=identity)


CORNERS = (Try(), Try(caching=False), Try(k=7), Try(k=7, caching=False))


def traffic(requests: int = 24, *, shared: int = 480, own: int = 40, temperature: float = 0.0) -> list[dict[str, Any]]:
    """Prompts of token ids with a shared beginning."""
    prefix = list(range(1000, 1000 + shared))
    return [
        {
            "prompt": [*prefix, *range(100_000 + n * 1000, 100_000 + n * 1000 + own)],
            "max_tokens": 64,
            "temperature": temperature,
            "seed": n,
        }
        for n in range(requests)
    ]


def study(
    tries: Sequence[Try],
    engine: Calibration = CLEAN,
    *,
    loads: Sequence[int] = (2,),
    temperatures: Sequence[float] = (0.0,),
    bodies: Sequence[Mapping[str, Any]] | None = None,
) -> list[TrialRecord]:
    """One trial for each configuration, measured under every temperature and load."""
    records = []
    for number, one in enumerate(tries):
        setup = resolve(parse_flags(["serve", *one.config().to_argv()]), engine)
        measured = []
        for temperature in temperatures:
            for load in loads:
                key = "chat"
                key += f"/t{temperature:g}" if len(temperatures) > 1 else ""
                key += f"/c{load}" if len(loads) > 1 else ""
                sent = [{**body, "temperature": temperature} for body in (bodies or traffic())]
                measured.append(measurement(key, setup, sent, load, temperature=temperature, wrong=one.wrong))
        records.append(_record(number, one, engine, measured))
    return records


def explained(records: Sequence[TrialRecord]) -> Explanation:
    """The study explained."""
    return explain(records, (), study="made", objective=parse_objective("throughput"), confidence=0.95)


def fired(records: Sequence[TrialRecord]) -> set[str]:
    """Names of the rules that fire."""
    return {finding.rule for finding in explained(records).findings}


def measurement(
    key: str, setup: EngineSetup, bodies: Sequence[Mapping[str, Any]], load: int, *, temperature: float, wrong: bool
) -> Measurement:
    """What measure.py would have written."""
    result = simulate_closed_loop(setup, bodies, load)
    rows = defaultdict(list)
    for number, (sequence, end_s) in enumerate(zip(result.sequences, result.end_s, strict=True)):
        rows[number * BLOCKS // len(bodies)].append((sequence, end_s))
    whole = [row for block in rows.values() for row in block]
    return Measurement(
        condition=key,
        part="search",
        temperature=temperature,
        load=f"concurrency={load}",
        started_at="2026-01-01T00:00:00+00:00",
        replay_s=result.duration_s,
        attempts=1,
        problems=(),
        metrics=_latencies(whole) | _counted(setup, result, load),
        blocks=tuple(BlockValue(block=number, metrics=_latencies(block)) for number, block in rows.items()),
        greedy_outputs={
            str(n): hashlib.sha256(f"{wrong}{s.seed}".encode()).hexdigest()[:16] for n, s in enumerate(result.sequences)
        }
        if temperature == 0
        else {},
    )


def _latencies(rows: Sequence[tuple[SequenceState, float]]) -> dict[str, float]:
    e2e_s = [end_s - s.queued_s for s, end_s in rows]
    ttft_s = [(s.first_token_s or 0.0) - s.queued_s for s, _ in rows]
    tpot_s = [(end_s - (s.first_token_s or 0.0)) / max(1, s.emitted - 1) for s, end_s in rows]
    tokens = sum(s.emitted for s, _ in rows)
    found = {"requests": float(len(rows)), "output_tok_s": tokens / sum(e2e_s)}
    for name, values in (("e2e", e2e_s), ("ttft", ttft_s), ("tpot", tpot_s)):
        found |= {f"{name}_mean_s": float(np.mean(values)), f"{name}_p50_s": float(np.median(values))}
    return found


def _counted(setup: EngineSetup, result: OfflineResult, load: int) -> dict[str, float]:
    counts = result.counts
    waited_s = sum((s.scheduled_s or 0.0) - s.queued_s for s in result.sequences)
    e2e_s = sum(end_s - s.queued_s for s, end_s in zip(result.sequences, result.end_s, strict=True))
    found = {
        "output_tok_s": result.output_tok_s,
        "completion_tokens": float(result.output_tokens),
        "prompt_tokens": float(sum(len(s.prompt) for s in result.sequences)),
        "in_flight_mean": float(load),
        "running_mean": load * (1 - waited_s / e2e_s),
        "waiting_mean": load * waited_s / e2e_s,
        "preemptions": float(counts.preemptions),
        "kv_block_tokens": float(setup.block_tokens),
    }
    if counts.cache_queries:
        found |= {
            "prefix_hit_tokens": float(counts.cache_hits),
            "prefix_hit_rate": counts.cache_hits / counts.cache_queries,
        }
    if counts.drafts:
        found |= {
            "drafts": float(counts.drafts),
            "draft_tokens": float(counts.draft_tokens),
            "accepted_tokens": float(counts.accepted_tokens),
            "acceptance_length": 1 + counts.accepted_tokens / counts.drafts,
            "acceptance_rate": counts.accepted_tokens / counts.draft_tokens,
        }
        found |= {f"accepted_at_{n:02d}": c / counts.drafts for n, c in enumerate(counts.accepted_at, start=1)}
    return found


def _record(number: int, one: Try, engine: Calibration, measured: Sequence[Measurement]) -> TrialRecord:
    return TrialRecord(
        plan=TrialPlan(
            number=number,
            step=f"search/{number}" if number else "baseline",
            phase="search" if number else "baseline",
            asked_by=None,
            temperature=None,
            serve_config=one.config(),
            conditions=tuple(m.condition for m in measured),
        ),
        status="measured",
        failure=None,
        engine_version=f"{engine.release}+simulated",
        seconds={},
        measurements={m.condition: m for m in measured},
    )
