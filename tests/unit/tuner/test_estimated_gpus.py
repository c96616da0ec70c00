"""How many GPUs an engine is estimated to hold."""

from dataclasses import replace
from typing import Any

import pytest

from search_spaces import Gpu, load_space
from tests.unit.tuner.made import resolve
from tuner.estimate import engine_gpus


@pytest.mark.parametrize(
    ("fixed", "gpus", "held"),
    [
        ({}, 8, 1),
        ({"tensor-parallel-size": 2}, 8, 2),
        ({"tensor-parallel-size": 2, "pipeline-parallel-size": 2, "data-parallel-size": 2}, 8, 8),
        ({"pipeline-parallel-size": 4}, 8, 4),
        ({"data-parallel-size": 2}, 2, 2),
    ],
)
def test_an_engine_holds_the_product_of_its_parallel_sizes(fixed: dict[str, Any], gpus: int, held: int) -> None:
    space = resolve(load_space("quick"))
    known = replace(space.facts, device="gpu", gpus=(Gpu("test", 80 << 30),) * gpus)
    assert engine_gpus(replace(space, facts=known, fixed_args=fixed)) == held


def test_a_searched_size_is_multiplied_with_the_fixed_ones_up_to_the_gpus_there_are() -> None:
    space = resolve(load_space("quick"))
    known = replace(space.facts, device="gpu", gpus=(Gpu("test", 80 << 30),) * 8)
    searched = load_space("full").resolve(known, fixed_args={"pipeline-parallel-size": 2}, env={})
    assert "tensor_parallel_size" in searched.knobs
    assert engine_gpus(searched) == 8
