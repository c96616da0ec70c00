"""What a study leaves on disk, as strict types: measurements, trials and recommendations.

These files are the truth of a study; Optuna's database, MLflow, exports and reports are made from them and can be made
again. Values are plain numbers with units in their names; no prompt and no output text is stored.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from search_spaces import Scalar, ServeConfig

Phase = Literal["baseline", "recipe", "seed", "search", "confirm"]
SEARCH_PHASES: tuple[Phase, ...] = ("baseline", "recipe", "seed", "search")


class Strict(BaseModel):
    """Base of every record: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BlockValue(Strict):
    """One paired block of a measurement."""

    block: int = Field(description="index of the block within its part of the profile")
    metrics: dict[str, float] = Field(description="metrics of this block alone")


class Measurement(Strict):
    """The result of one condition on one engine launch."""

    condition: str = Field(description="key of the condition")
    part: Literal["search", "held_out"] = Field(description="which sessions were replayed")
    temperature: float | None = Field(description="temperature sent; None as recorded")
    load: str = Field(description="how the replay was driven")
    started_at: str = Field(description="UTC time of the start, ISO 8601")
    replay_s: float = Field(description="wall-clock seconds of the replay")
    attempts: int = Field(description="replays done until this one; 1 unless the first was invalid")
    problems: tuple[str, ...] = Field(description="why the measurement is invalid; empty when it is valid")
    metrics: dict[str, float] = Field(description="metrics of the whole measurement")
    blocks: tuple[BlockValue, ...] = Field(description="paired blocks")
    greedy_outputs: dict[str, str] = Field(description="hash of each output at temperature 0, by request id")

    @property
    def valid(self) -> bool:
        """Whether the numbers may be used."""
        return not self.problems


class Failure(Strict):
    """Why a launch or its measurements failed."""

    kind: str = Field(description="failure class")
    message: str = Field(description="one sentence with the remedy")
    infrastructure: bool = Field(description="whether the configuration is innocent")


class TrialPlan(Strict):
    """What a trial is going to do; written before the launch."""

    number: int = Field(description="number of the trial in the study")
    step: str = Field(description="place of the trial in the study, unique, stable over resumes")
    phase: Phase = Field(description="part of the study")
    asked_by: str | None = Field(description="condition whose study proposed the values")
    temperature: float | None = Field(description="searched temperature for all conditions; None when not searched")
    serve_config: ServeConfig = Field(description="how the engine is started")
    conditions: tuple[str, ...] = Field(description="conditions to measure")


class TrialRecord(Strict):
    """A finished trial."""

    plan: TrialPlan = Field(description="what it set out to do")
    status: Literal["measured", "rejected", "failed"] = Field(
        description="rejected: the configuration is at fault; failed: the infrastructure is"
    )
    failure: Failure | None = Field(description="why it is not measured")
    engine_version: str | None = Field(description="what the engine's /version said")
    started_at: str | None = Field(default=None, description="UTC time at which it began, ISO 8601; last attempt")
    ended_at: str | None = Field(default=None, description="UTC time at which its engine was gone, ISO 8601")
    seconds: dict[str, float] = Field(description="wall-clock seconds by activity")
    measurements: dict[str, Measurement] = Field(description="by condition")
    applied: dict[str, Scalar] = Field(
        default_factory=dict, description="settings whose effective value differs from the asked one"
    )

    @property
    def simulated(self) -> bool:
        """Whether a simulated engine answered: its version says so, whatever command started it."""
        return (self.engine_version or "").endswith("+simulated")

    def values(self) -> dict[str, Scalar]:
        """Knob values of the serve config."""
        return self.plan.serve_config.values

    def effective(self) -> dict[str, Scalar]:
        """Knob values that the engine really used: what was measured belongs to these."""
        asked = self.values()
        return {**asked, **{name: value for name, value in self.applied.items() if name in asked}}


class Effect(Strict):
    """A gain with its interval. 1.0 means no change, above 1 is better."""

    gain: float = Field(description="geometric mean over paired blocks and rounds of better/worse ratio")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")
    confidence: float = Field(description="confidence level of the interval, after correction for several finalists")
    pairs: int = Field(description="paired blocks times rounds")


class OutputCheck(Strict):
    """Greedy outputs against the baseline engine."""

    compared: int = Field(description="requests at temperature 0 compared")
    identical: int = Field(description="of those, byte-identical outputs")
    calibration_identical: float | None = Field(description="share identical when the baseline is run against itself")
    verdict: Literal["identical", "within calibration", "changed", "not comparable"] = Field(
        description="what it means"
    )


class Recommendation(Strict):
    """The answer for one condition."""

    condition: str = Field(description="key of the condition")
    profile: str = Field(description="profile name")
    verdict: Literal["change", "keep", "no reliable gain"] = Field(description="what to do")
    serve_config: ServeConfig = Field(description="the configuration to serve with")
    baseline: ServeConfig = Field(description="what it was compared with")
    objective: str = Field(description="what was optimised")
    value: float = Field(description="objective of the recommended configuration in the confirmation")
    baseline_value: float = Field(description="objective of the baseline in the confirmation")
    effect: Effect | None = Field(description="gain over the baseline; None when the baseline itself is recommended")
    best_candidate: str = Field(description="label of the best candidate, recommended or not")
    output_check: OutputCheck | None = Field(description="None when the baseline itself is recommended")
    slo_met: bool = Field(description="whether every SLO held in the confirmation")
    reason: str = Field(description="why, in one or two sentences with figures")
    caveats: tuple[str, ...] = Field(description="what to keep in mind")
    trials: tuple[int, ...] = Field(description="trials that are the evidence")
    metrics: dict[str, float] = Field(description="metrics of the recommended configuration in the confirmation")
    simulated: bool = Field(description="whether the engine was a simulation")


class Provenance(Strict):
    """Where the figures come from."""

    created_at: str = Field(description="UTC, ISO 8601")
    tuner_version: str = Field(description="version of dflash-tuner")
    python: str = Field(description="interpreter of the tuner")
    host: str = Field(description="operating system and kernel")
    cpu: str = Field(description="processor and core count")
    memory_gib: float = Field(description="memory of the host")
    gpus: tuple[str, ...] = Field(description="GPU names with memory")
    engine_version: str = Field(description="vLLM release the plan assumed")
    workload_digest: str = Field(description="digest of the workload file")
    engine_image: str | None = Field(default=None, description="container image of the engine, where one was named")
    study: str | None = Field(default=None, description="name of the study")
    run: str | None = Field(default=None, description="id of the study's MLflow run, where it is known")
