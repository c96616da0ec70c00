"""Prompts made from shapes: exact lengths, sharing block by block, the same everywhere."""

import hashlib
import json
import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import Request, Shape, read_workload
from workloads.shape import ShapeBody, token_ids
from workloads.wire import Overrides, wire_body

FILES = Path(__file__).parents[2] / "data" / "formats"
SHAPE_ONLY = (
    "mooncake.jsonl",
    "bailian.jsonl",
    "burstgpt.csv",
    "azure_llm.csv",
    "dynamo.jsonl",
    "guidellm_replay.jsonl",
)


def sent(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(wire_body(request, "served", Overrides()))
    return body


shapes = st.builds(
    lambda blocks, size, tail, output: Shape(max(1, len(blocks) * size - tail % size), output, tuple(blocks), size),
    st.lists(st.integers(0, 5), max_size=6),
    st.sampled_from([1, 16, 512]),
    st.integers(0, 511),
    st.integers(1, 9),
)


@given(shapes, shapes, st.integers(2, 200_000))
def test_lengths_are_exact_and_what_two_prompts_share_is_what_their_ids_say(
    one: Shape, other: Shape, vocab_size: int
) -> None:
    first, second = token_ids(one, "a", vocab_size), token_ids(other, "b", vocab_size)
    assert (len(first), len(second)) == (one.input_length, other.input_length)
    assert all(0 < token < min(vocab_size, 32_000) for token in [*first, *second])
    if one.block_tokens == other.block_tokens:
        blocks = next(
            (at for at, (x, y) in enumerate(zip(one.hash_ids, other.hash_ids, strict=False)) if x != y),
            min(len(one.hash_ids), len(other.hash_ids)),
        )
        shared = min(blocks * one.block_tokens, len(first), len(second))
        assert first[:shared] == second[:shared]


def test_blocks_with_different_ids_and_tails_of_different_requests_share_nothing() -> None:
    ids = [token_ids(Shape(64, 1, (number, number + 1), 16), f"r{number}", 32_000) for number in range(0, 20, 2)]
    starts = [tuple(prompt[at : at + 16]) for prompt in ids for at in range(0, 64, 16)]
    assert len(set(starts)) == len(starts)


def test_prompts_are_the_same_in_another_process() -> None:
    code = (
        "import hashlib,json; from workloads.shape import Shape, token_ids; "
        "print(hashlib.sha256(json.dumps(token_ids(Shape(1300, 4, (46, 47), 512), 'r', 32000)).encode()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    here = hashlib.sha256(json.dumps(token_ids(Shape(1300, 4, (46, 47), 512), "r", 32_000)).encode()).hexdigest()
    assert done.stdout.strip() == here


@pytest.mark.parametrize("name", SHAPE_ONLY)
def test_a_trace_without_text_is_sent_with_its_lengths_and_never_with_structure(name: str) -> None:
    workload = read_workload(FILES / name)
    assert not workload.text_bearing
    for request in workload.requests:
        body, shape = sent(request), request.shape
        assert shape is not None
        assert request.endpoint == "/v1/completions"
        assert (len(body["prompt"]), body["max_tokens"]) == (shape.input_length, shape.output_length)
        assert body["ignore_eos"] is True
        assert not body.keys() & {"response_format", "structured_outputs", "tools", "guided_json"}


def test_text_keeps_its_free_length() -> None:
    workload = read_workload(FILES / "vllm_custom.jsonl")
    assert workload.text_bearing
    assert [("max_tokens" in sent(request), "ignore_eos" in sent(request)) for request in workload.requests] == [
        (True, False),
        (False, False),
    ]


def test_a_trace_keeps_its_arrivals_and_its_sharing() -> None:
    first, second, third = read_workload(FILES / "mooncake.jsonl").requests
    assert [later.offset_s for later in (first, second, third)] == [0.0, 3.0, 4.5]
    prompts = [sent(request)["prompt"] for request in (first, second, third)]
    assert prompts[0][:1024] == prompts[1][:1024]
    assert all(one[1024:1040] != other[1024:1040] for one, other in pairwise(prompts[:2]))
    assert prompts[0][:16] != prompts[2][:16]


def test_a_smaller_vocabulary_is_kept_to() -> None:
    request = read_workload(FILES / "mooncake.jsonl", vocab_size=500).requests[0]
    assert max(sent(request)["prompt"]) < 500


def test_a_body_made_from_a_shape_survives_a_process_boundary_and_stays_small() -> None:
    body = ShapeBody(Shape(100_000, 4, tuple(range(196)), 512), "r", 32_000)
    packed = pickle.dumps(body)
    assert len(packed) < 2000
    assert pickle.loads(packed) == body  # noqa: S301 - made two lines above
