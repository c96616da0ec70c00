"""Every number that shapes the demo pair: architecture, data mix, optimisation.

Plain frozen dataclasses, so that a run is described by the values printed in its log. Budgets are wall-clock minutes on
two CPU threads, because that is what a person who trains the pair has.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that target and draft share; deep and thin, so that a decode step costs milliseconds, not megabytes."""

    vocab_size: int = 4096
    hidden_size: int = 128
    intermediate_size: int = 320
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    target_layers: int = 32
    draft_layers: int = 2
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 8192
    feature_layers: tuple[int, ...] = (1, 8, 15, 22, 30)
    """Target layers (counted from 0) whose outputs the draft reads: `dflash_config.target_layer_ids`."""


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """How the target is trained."""

    minutes: float = 23.0
    shallow_layers: int = 8
    shallow_share: float = 0.35
    """Share of the minutes that trains the shallow network, before it is deepened."""
    batch_rows: int = 8
    row_tokens: int = 256
    long_row_tokens: int = 2304
    long_share: float = 0.10
    """Share of the steps that train one row with the whole handbook in front."""
    mix: tuple[tuple[str, float], ...] = (
        ("code", 0.50),
        ("story", 0.22),
        ("support", 0.16),
        ("handbook", 0.05),
        ("library", 0.07),
    )
    peak_lr: float = 2e-3
    warmup_steps: int = 40
    weight_decay: float = 0.01


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """How the draft is trained on the target's own generations."""

    minutes: float = 26.0
    generate_share: float = 0.22
    """At most this share of the minutes goes into generating; the rest trains."""
    block_size: int = 16
    """Anchor plus masks: the largest K is one less."""
    query_tokens: int = 288
    """At most this many query tokens per row of a batch; the number of anchors follows from the number of masks."""
    max_anchors: int = 36
    batch_rows: int = 8
    support_rows: int = 4
    mix: tuple[tuple[str, float], ...] = (("code", 0.40), ("story", 0.22), ("support", 0.38))
    sampled_share: tuple[tuple[str, float], ...] = (("code", 0.15), ("story", 0.6), ("support", 0.1))
    """Share of the generations drawn at temperature 0.8 instead of greedily."""
    temperature: float = 0.8
    position_decay: float = 6.0
    """Loss weight of the k-th mask is exp(-(k-1)/decay): an early miss costs every later token."""
    peak_lr: float = 1.5e-3
    warmup_steps: int = 50
    weight_decay: float = 0.0


@dataclass(frozen=True, slots=True)
class PairSettings:
    """One complete run."""

    seed: int = 20
    threads: int = 2
    checkpoint_s: float = 120.0
    shape: Shape = field(default_factory=Shape)
    target: TargetSettings = field(default_factory=TargetSettings)
    draft: DraftSettings = field(default_factory=DraftSettings)
