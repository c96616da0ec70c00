"""Records as a study would have written them, made by hand so that a test can say what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from search_spaces import Checkpoint, Facts, ResolvedSpace, Scalar, SearchSpace, load_release, load_space
from tuner.conditions import Condition
from tuner.objective import Slo, parse_objective
from tuner.records import BlockValue, Failure, Measurement, Phase, Provenance, TrialPlan, TrialRecord
from tuner.rules import Rules
from workloads import Load

CODE = Condition("code", "code", None, Load("concurrency", 2.0))
CHAT = Condition("chat", "chat", None, Load("concurrency", 2.0))


def resolved_space(
    preset: str = "quick", *, model: str = "/models/target", env: Mapping[str, str] | None = None
) -> ResolvedSpace:
    """A preset for a draft of block 16 on a CPU."""
    return resolve(load_space(preset), model=model, env=env)


def resolve(
    space: SearchSpace, *, model: str = "/models/target", env: Mapping[str, str] | None = None
) -> ResolvedSpace:
    target = Checkpoint(
        path=model,
        architectures=("Qwen3ForCausalLM",),
        hidden_size=128,
        vocab_size=4096,
        num_hidden_layers=32,
        max_position_embeddings=4096,
    )
    draft = target.model_copy(
        update={"path": "/models/draft", "architectures": ("DFlashDraftModel",), "draft_block": 16}
    )
    facts = Facts(target=target, draft=draft, release=load_release("0.32.0")[0], device="cpu")
    return space.resolve(facts, fixed_args={"dtype": "float32"}, env=env or {})


def dflash(k: int, **values: Scalar) -> dict[str, Scalar]:
    return {"method": "dflash", "num_speculative_tokens": k, **values}


def measurement(
    condition: str,
    value: float,
    *,
    metric: str = "output_tok_s",
    blocks: Sequence[float] | None = None,
    problems: tuple[str, ...] = (),
    outputs: Mapping[str, str] | None = None,
    **metrics: float,
) -> Measurement:
    """A measurement whose objective is `value`, in four equal blocks unless said otherwise."""
    rows = [value] * 4 if blocks is None else blocks
    return Measurement(
        condition=condition,
        part="search",
        temperature=None,
        load="concurrency=2",
        started_at="2026-01-01T00:00:00+00:00",
        replay_s=1.0,
        attempts=1,
        problems=problems,
        metrics={metric: value, **metrics},
        blocks=tuple(BlockValue(block=i, metrics={metric: one}) for i, one in enumerate(rows)),
        greedy_outputs=dict(outputs or {}),
    )


def record(
    number: int,
    step: str,
    values: Mapping[str, Scalar],
    *measured: Measurement,
    space: ResolvedSpace | None = None,
    failure: Failure | None = None,
    temperature: float | None = None,
) -> TrialRecord:
    """A finished trial; the phase is the first part of the step."""
    phase = cast("Phase", step.split("/", maxsplit=1)[0])
    config = (space or resolved_space()).serve_config(values)
    status = "measured" if measured else "failed" if failure and failure.infrastructure else "rejected"
    return TrialRecord(
        plan=TrialPlan(
            number=number,
            step=step,
            phase=phase,
            asked_by=None,
            temperature=temperature,
            serve_config=config,
            conditions=tuple(m.condition for m in measured) or ("code",),
        ),
        status=status,
        failure=failure,
        engine_version="0.32.0",
        seconds={},
        measurements={m.condition: m for m in measured},
    )


def rules(*, objective: str = "throughput", slos: tuple[Slo, ...] = (), **changes: Any) -> Rules:
    fields = {"confidence": 0.95, "temperature_searched": False, **changes}
    return Rules(objective=parse_objective(objective), slos=slos, **fields)


PROVENANCE = Provenance(
    created_at="2026-01-01T00:00:00+00:00",
    tuner_version="0.1.0",
    python="3.11",
    host="Linux",
    cpu="A CPU (2 cores)",
    memory_gib=8.0,
    gpus=(),
    engine_version="0.32.0",
    workload_digest="sha256:abc",
)
