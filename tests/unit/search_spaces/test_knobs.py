"""A knob is checked when it is read, so that a search never meets half of one."""

from typing import Any

import pytest
from pydantic import ValidationError

from search_spaces import Knob


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"choices": [1]}, "give exactly one of flag and speculative_key"),
        ({"choices": [1], "flag": "a", "speculative_key": "b"}, "give exactly one of flag and speculative_key"),
        ({"flag": "a"}, "give either choices or both low and high"),
        ({"flag": "a", "low": 1}, "give either choices or both low and high"),
        ({"flag": "a", "low": 1, "high": 2, "choices": [1]}, "give either choices or both low and high"),
        ({"flag": "a", "low": 8, "high": 3}, "low 8 is above high 3"),
        ({"flag": "a", "low": -1, "high": 3}, "greater than or equal to 0"),
        ({"flag": "a", "low": 1, "high": 3, "step": 0}, "greater than or equal to 1"),
        ({"flag": "a", "low": 1, "high": "draft"}, "'draft_block'"),
        ({"flag": "a", "choices": [1, 1]}, "repeat a value"),
        ({"flag": "a", "choices": []}, "choices is empty"),
        ({"flag": "a", "choices": [1], "wen": {}}, "Extra inputs are not permitted"),
        ({"speculative_key": "rejection_sample_method", "choices": ["standard", "synthetic"]}, "fake or change"),
        ({"speculative_key": "rejection_sample_method", "choices": ["fly"]}, "fake or change"),
    ],
)
def test_a_knob_that_cannot_be_searched_is_refused_with_the_reason(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Knob.model_validate(fields)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"choices": [None, 16, 32]}, (None, 16, 32)),
        # 1 and true are different choices although Python calls them equal.
        ({"choices": [1, True]}, (1, True)),
        ({"low": 1, "high": 4}, (1, 2, 3, 4)),
        ({"low": 2, "high": 9, "step": 3}, (2, 5, 8)),
        ({"low": 3, "high": 3}, (3,)),
    ],
)
def test_values_are_the_choices_or_the_range(fields: dict[str, Any], values: tuple[object, ...]) -> None:
    assert values == Knob.model_validate({"flag": "a", **fields}).values()


def test_a_range_that_waits_for_the_draft_has_no_values_yet() -> None:
    knob = Knob(flag="a", low=1, high="draft_block")
    with pytest.raises(ValueError, match="not resolved"):
        knob.values()


def test_a_knob_is_alive_only_while_every_condition_holds() -> None:
    knob = Knob.model_validate({"flag": "a", "choices": [1], "when": {"method": ["dflash"], "cache": [True, None]}})
    assert knob.is_alive({"method": "dflash", "cache": True})
    assert knob.is_alive({"method": "dflash"})
    assert not knob.is_alive({"method": "dflash", "cache": False})
    assert not knob.is_alive({"method": "none", "cache": True})
