"""What an explanation says, as strict types: figures with intervals, and the findings made from them.

`Explanation` is what `tune explain --json` prints and what the report draws. How the figures come about is the business
of the module that is named after each question. No prompt and no output text is in here.
"""

from typing import Literal

from pydantic import Field

from tuner.records import Strict


class Figure(Strict):
    """A measured or derived number with its interval."""

    value: float = Field(description="the number")
    low: float | None = Field(default=None, description="lower end of the interval; None when one launch has one block")
    high: float | None = Field(default=None, description="upper end")
    count: int = Field(default=1, description="paired blocks (or drafts, or resamples) behind it")


class Corner(Strict):
    """One of the four configurations of an interaction."""

    label: str = Field(description="the configuration in short")
    trials: tuple[int, ...] = Field(description="numbers of the trials that measured it")
    value: float = Field(description="objective, mean over the trials")
    gain: Figure = Field(description="times better than neither; 1 for neither itself")
    acceptance_length: float | None = Field(description="tokens per verification step; None without speculation")
    hit_rate: float | None = Field(description="share of prompt tokens from the prefix cache")


class Interaction(Strict):
    """Two settings alone and together. Independent effects multiply, so that is what is expected of both."""

    condition: str = Field(description="key of the condition")
    first: str = Field(description="one setting, with its value")
    second: str = Field(description="the other setting, with its value")
    context: str = Field(description="what is the same in all four; empty when all else is as in the baseline")
    neither: Corner = Field(description="without both")
    first_only: Corner = Field(description="with the first")
    second_only: Corner = Field(description="with the second")
    both: Corner = Field(description="with both")
    expected_gain: float = Field(description="gain of both if independent: product of the two gains")
    difference: Figure = Field(description="gain of both over the expected one; below 1 they hinder each other")
    additive_gain: float | None = Field(
        description="gain of both if each saves its own part of the time, 1 / (1/first + 1/second - 1), as speculation "
        "(decoding) and a prefix cache (prompts) do that leave each other alone; None where no time is left"
    )
    causes: tuple[str, ...] = Field(default=(), description="names of the findings that explain the difference")


class CacheUse(Strict):
    """How much of the prompts one configuration with speculation took from the prefix cache, against the ideal."""

    condition: str = Field(description="key of the condition")
    label: str = Field(description="the configuration in short")
    trial: int = Field(description="its trial")
    ideal_label: str = Field(description="the same configuration without speculation, or with the block drop off")
    kv_block_tokens: int | None = Field(description="tokens of one KV block, as the engine says")
    cached_tokens: float = Field(description="prompt tokens found in the cache")
    ideal_tokens: float = Field(description="the same of the ideal")
    requests: int = Field(description="requests of the measurement")
    lost_blocks_per_request: float | None = Field(
        description="blocks lost per request; None where the block is unknown"
    )
    drops: bool | None = Field(description="whether release and flags say that hits lose a block; None if unknown")


class Acceptance(Strict):
    """What the draft achieved under one condition at one K."""

    condition: str = Field(description="key of the condition")
    profile: str = Field(description="profile")
    temperature: float | None = Field(description="temperature sent; None as recorded")
    load: str = Field(description="load")
    concurrency: float | None = Field(description="requests in flight, mean")
    trial: int = Field(description="trial")
    label: str = Field(description="the configuration in short")
    method: str = Field(description="speculative method")
    k: int = Field(description="draft tokens per step")
    rate: Figure = Field(description="accepted / drafted tokens")
    length: Figure = Field(description="tokens per verification step, 1 + accepted / drafts")
    curve: tuple[float, ...] = Field(description="p_k: accepted at position k / drafts, for k = 1..K")
    drafts: int = Field(description="verification steps with a draft")
    drafted_tokens: int = Field(description="tokens drafted")
    wasted_tokens: int = Field(description="of those, not accepted")


class BestLength(Strict):
    """The K that the longest measured curve implies against the K that was measured best, at one load."""

    condition: str = Field(description="key of the condition")
    concurrency: float | None = Field(description="requests in flight, mean")
    curve_of_k: int = Field(description="K of the curve that was cut")
    predicted: dict[int, float] = Field(description="predicted speedup over no speculation, by K")
    implied_k: int = Field(description="K with the best prediction; 0 is no speculation")
    measured: dict[int, float] = Field(description="measured speedup over no speculation, by K")
    best_k: int = Field(description="K with the best measurement; 0 is no speculation")


class SpeedPoint(Strict):
    """Speculation's speedup of decoding in one configuration: what the step times imply and what was measured."""

    condition: str = Field(description="key of the condition")
    trial: int = Field(description="trial")
    k: int = Field(description="draft tokens per step")
    batch: float = Field(description="requests that ran at once, mean")
    target_step_s: float = Field(description="step without speculation at this load")
    step_s: float = Field(description="step with speculation")
    draft_s: float | None = Field(description="of it, the draft pass; None where it cannot be told from verification")
    verify_s: float | None = Field(description="of it, what verifying K more tokens per request costs")
    acceptance_length: float = Field(
        description="tokens that a request got per step; less than was accepted, because an answer's end cuts a draft"
    )
    cost_ratio: float = Field(
        description="c: draft pass / target step; all that is added where it cannot be told apart"
    )
    predicted: float = Field(description="speedup from the fitted model, acceptance_length x target_step / step")
    one_pass: float = Field(description="E / (1 + c): one draft pass, verification free")
    leviathan: float | None = Field(
        description="(1 - a^(K+1)) / (1 - a) / (K c + 1) with the constant a that gives the same length: an "
        "autoregressive draft that is run K times"
    )
    measured: Figure = Field(description="TPOT without over TPOT with speculation")


class SpeedModel(Strict):
    """Step time of one profile and method: T(B, K) = T_target(B) + draft + verify x B x K, by least squares."""

    profile: str = Field(description="profile")
    temperature: float | None = Field(description="temperature sent; None as recorded")
    method: str = Field(description="speculative method")
    target_step_s: dict[str, float] = Field(description="step without speculation, by mean requests in flight")
    draft_s: float | None = Field(description="seconds of a draft pass; None with fewer than two different B x K")
    verify_s_per_token: float | None = Field(description="seconds per additional query token")
    error: float | None = Field(description="root mean square of predicted over measured step, minus 1")
    assumptions: tuple[str, ...] = Field(description="what must hold for the model and for each formula")
    points: tuple[SpeedPoint, ...] = Field(description="one for each measured configuration")


class LoadPoint(Strict):
    """One configuration at one load."""

    concurrency: float = Field(description="requests in flight: the asked one in a closed loop, else the mean")
    load: str = Field(description="load")
    condition: str = Field(description="key of the condition")
    output_tok_s: Figure = Field(description="output tokens per second")
    ttft_s: float | None = Field(description="median TTFT")
    tpot_s: float | None = Field(description="median TPOT")
    e2e_s: float | None = Field(description="median E2E")
    goodput_rate: float | None = Field(description="requests per second within every SLO; None without SLOs")
    goodput_share: float | None = Field(description="share of requests within every SLO; None without SLOs")


class LoadSeries(Strict):
    """One configuration over the loads."""

    label: str = Field(description="the configuration in short")
    role: Literal["baseline", "recommendation", "alternative"] = Field(description="what it is in the study")
    speculates: bool = Field(description="whether it speculates")
    trials: tuple[int, ...] = Field(description="trials that measured it")
    points: tuple[LoadPoint, ...] = Field(description="by rising load")
    saturation: float | None = Field(
        description="smallest load from which on throughput rises by less than 5% per doubling; None if it still rises"
    )


class LoadCurve(Strict):
    """A profile over the loads of the study."""

    profile: str = Field(description="profile")
    temperature: float | None = Field(description="temperature sent; None as recorded")
    series: tuple[LoadSeries, ...] = Field(description="baseline first, then the recommendation, then the alternatives")
    crossover: float | None = Field(
        description="requests in flight above which the best speculating series is slower than the best other; None if "
        "the curves do not cross in the measured range"
    )
    speculation_wins: Literal["everywhere", "below", "nowhere", "unknown"] = Field(
        description="where speculation is faster, as far as measured"
    )


class Importance(Strict):
    """How much a knob decided whether a configuration was among the better ones (PED-ANOVA)."""

    condition: str = Field(description="key of the condition")
    knob: str = Field(description="name of the knob")
    share: Figure = Field(description="share of the importance of all knobs, with a bootstrap interval over trials")
    matters: bool = Field(
        description="whether the share is above what shuffled trials give a knob, at the confidence level"
    )
    best_value: str = Field(description="value of the knob in the best configuration")


class Finding(Strict):
    """A rule that fired: what is wrong, the evidence, and what to do."""

    rule: str = Field(description="name of the rule")
    condition: str = Field(description="key of the condition, or of the profile")
    title: str = Field(description="what it means, in a few words")
    evidence: str = Field(description="one sentence with the figures behind it")
    remedy: str = Field(description="what to do")
    kind: Literal["config", "release", "draft", "load", "engine"] = Field(description="what has to change")
    trials: tuple[int, ...] = Field(description="trials that are the evidence")
    recovery: Figure | None = Field(
        default=None, description="predicted gain of the remedy over the affected configuration; None if not predicted"
    )


class Explanation(Strict):
    """The answers to "why", for all conditions of a study."""

    study: str = Field(description="name of the study")
    engine_version: str = Field(description="vLLM release")
    simulated: bool = Field(description="whether the engine was a simulation")
    objective: str = Field(description="metric that was optimised")
    objective_unit: str = Field(description="its unit")
    confidence: float = Field(description="confidence level of the intervals")
    summary: tuple[str, ...] = Field(description="the answer in short sentences, most important first")
    findings: tuple[Finding, ...] = Field(description="what to do and why; empty when nothing is wrong")
    interactions: tuple[Interaction, ...] = Field(description="speculation x prefix caching first")
    cache_use: tuple[CacheUse, ...] = Field(description="cached tokens against the ideal")
    acceptance: tuple[Acceptance, ...] = Field(description="by condition and configuration")
    best_lengths: tuple[BestLength, ...] = Field(description="K implied against K measured best")
    speed: tuple[SpeedModel, ...] = Field(description="step times and speedups")
    load_curves: tuple[LoadCurve, ...] = Field(description="one for each profile and temperature")
    importances: tuple[Importance, ...] = Field(description="knobs, most important first, by condition")
    missing: tuple[str, ...] = Field(description="what the study cannot answer, and what to run for it")
