"""Knobs: single tunable values of a serve config, and how each reaches the engine.

A knob is data. `flag` knobs become command-line flags, `speculative_key` knobs become keys of --speculative-config.
A value of null leaves the matter to the engine. Which knobs exist for a given draft and release is decided in space.py.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Scalar = bool | int | float | str | None
Values = Mapping[str, Scalar]

# `synthetic` fakes acceptance and `fly` (0.33) changes the output; neither can be a recommendation.
UNSAFE_VALUES: dict[str, tuple[str, ...]] = {"rejection_sample_method": ("synthetic", "fly")}


class Knob(BaseModel):
    """One tunable value: either a list of choices or an integer range."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    choices: tuple[Scalar, ...] | None = Field(default=None, description="allowed values; null leaves it to the engine")
    low: int | None = Field(default=None, ge=0, description="smallest value of an integer range")
    high: int | Literal["draft_block"] | None = Field(
        default=None,
        description='largest value; "draft_block" means the draft block without its anchor token',
    )
    step: int = Field(default=1, ge=1, description="distance between integer values")
    flag: str | None = Field(default=None, description="vLLM flag without dashes, e.g. block-size")
    speculative_key: str | None = Field(default=None, description="key of vLLM's --speculative-config")
    engine_default: Scalar = Field(default=None, description="what the engine does when the knob is not set, if known")
    when: dict[str, tuple[Scalar, ...]] = Field(
        default_factory=dict, description="the knob is dead unless these other knobs have one of these values"
    )
    needs: Literal["can_disable_block_drop"] | None = Field(
        default=None, description="property of the vLLM release that must hold"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.flag is None) == (self.speculative_key is None):
            raise ValueError("give exactly one of flag and speculative_key")
        is_range = self.low is not None and self.high is not None
        if is_range == (self.choices is not None):
            raise ValueError("give either choices or both low and high")
        if isinstance(self.high, int) and self.low is not None and self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if self.choices is not None and len(set(map(repr, self.choices))) != len(self.choices):
            raise ValueError(f"choices {list(self.choices)} repeat a value")
        if not self.choices and self.choices is not None:
            raise ValueError("choices is empty; remove the knob instead")
        unsafe = UNSAFE_VALUES.get(self.speculative_key or "", ())
        if self.choices and any(choice in unsafe for choice in self.choices):
            raise ValueError(f"{self.speculative_key} must not be any of {unsafe}: they fake or change the output")
        return self

    def values(self) -> tuple[Scalar, ...]:
        """All values, smallest first for a range. The range must be resolved (no "draft_block")."""
        if self.choices is not None:
            return self.choices
        if not isinstance(self.high, int) or self.low is None:
            raise ValueError("the knob's range is not resolved yet")
        return tuple(range(self.low, self.high + 1, self.step))

    def is_alive(self, values: Values) -> bool:
        """Whether the knob matters given the other values."""
        return all(values.get(name) in allowed for name, allowed in self.when.items())
