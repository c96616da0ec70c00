"""Knobs: single tunable values of a serve config, and how each reaches the engine.

A knob is data. A `flag` knob becomes a command-line flag, or with `json_key` a key inside a flag that takes a JSON
object; a `speculative_key` knob becomes a key of --speculative-config. A value of null leaves the matter to the
engine. Which knobs exist for a model, draft and release is decided in offers.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from search_spaces.schedules import parse_integers, parse_schedule

Scalar = bool | int | float | str | None
Values = Mapping[str, Scalar]
Need = Literal["can_disable_block_drop", "hybrid", "gpu", "several_gpus"]

# `synthetic` fakes acceptance and `fly` (0.33) changes the output; neither can be a recommendation.
UNSAFE_VALUES: dict[str, tuple[str, ...]] = {"rejection_sample_method": ("synthetic", "fly")}
UNSAFE_KEYS = ("synthetic_", "fly_")


def unsafe(key: str, values: Iterable[object]) -> str | None:
    """Why a key of --speculative-config must not be set to any of these values; None when it may."""
    if key.startswith(UNSAFE_KEYS):
        return f"{key} must not be set: it fakes or changes the output"
    forbidden = UNSAFE_VALUES.get(key, ())
    if any(value in forbidden for value in values):
        return f"{key} must not be any of {forbidden}: they fake or change the output"
    return None


class Knob(BaseModel):
    """One tunable value: either a list of choices or an integer range."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    choices: tuple[Scalar, ...] | None = Field(default=None, description="allowed values; null leaves it to the engine")
    low: int | None = Field(default=None, ge=0, description="smallest value of an integer range")
    high: int | Literal["draft_block"] | None = Field(
        default=None,
        description='largest value; "draft_block" means the longest K that the draft was trained for',
    )
    step: int = Field(default=1, ge=1, description="distance between integer values")
    flag: str | None = Field(default=None, description="vLLM flag without dashes, e.g. block-size")
    json_key: str | None = Field(default=None, description="key inside the flag's JSON object, e.g. cudagraph_mode")
    speculative_key: str | None = Field(default=None, description="key of vLLM's --speculative-config")
    written_as: Literal["value", "integers", "schedule"] = Field(
        default="value",
        description='how a value is written for the engine: as it is; "1,2,4" as a list; "1-8:7,9-64:3" as a schedule',
    )
    engine_default: Scalar = Field(default=None, description="what the engine does when the knob is not set, if known")
    when: dict[str, tuple[Scalar, ...]] = Field(
        default_factory=dict, description="the knob is dead unless these other knobs have one of these values"
    )
    needs: tuple[Need, ...] = Field(default=(), description="what must hold for the knob to be offered")
    optional: bool = Field(
        default=False, description="left out, not an error, where the release or the model has no such thing"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_need_is_a_list(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("needs"), str):
            return {**fields, "needs": (fields["needs"],)}
        return fields

    @model_validator(mode="after")
    def _reaches_the_engine(self) -> Self:
        if (self.flag is None) == (self.speculative_key is None):
            raise ValueError("give exactly one of flag and speculative_key")
        if self.json_key is not None and self.flag is None:
            raise ValueError("json_key needs the flag whose JSON object it belongs to")
        if self.flag == "speculative-config":
            raise ValueError("write keys of --speculative-config as speculative_key, one knob each")
        if self.flag is not None and self.flag.startswith(("-", "no-")):
            raise ValueError(f"flag {self.flag!r} must be without dashes and without no-; use choices [true, false]")
        return self

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        is_range = self.low is not None and self.high is not None
        if is_range == (self.choices is not None):
            raise ValueError("give either choices or both low and high")
        if isinstance(self.high, int) and self.low is not None and self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if self.choices is not None and len(set(map(repr, self.choices))) != len(self.choices):
            raise ValueError(f"choices {list(self.choices)} repeat a value")
        if not self.choices and self.choices is not None:
            raise ValueError("choices is empty; remove the knob instead")
        reason = unsafe(self.speculative_key or "", self.choices or ())
        if reason:
            raise ValueError(reason)
        for choice in self.choices or ():
            self.written(choice)
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

    def written(self, value: Scalar) -> Any:
        """A value as the engine takes it.

        Raises:
            ValueError: it is not of the form that `written_as` asks for.
        """
        if value is None or self.written_as == "value":
            return value
        if not isinstance(value, str):
            raise ValueError(f"{value!r} must be text: {self.written_as} are written in quotes")  # noqa: TRY004 - pydantic turns only ValueError into a complaint with its place
        return parse_integers(value) if self.written_as == "integers" else parse_schedule(value)
