"""The repair of vllm#55005 in the engine's own interpreter: with the plugin right, without it wrong."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PYTHON = Path(__file__).resolve().parents[2] / ".engine" / "bin" / "python"
# Three requests with 2, 1 and 3 drafted tokens; the second is greedy, whose temperature 0 is to become 1. The memory
# that the result will get is filled beforehand, so that an untouched result cannot be right by chance.
PROBE = """
import json, torch
from vllm.plugins import load_general_plugins
from vllm.platforms import current_platform
load_general_plugins()
current_platform.import_kernels()
current_platform.register_triton_kernel_overrides()
from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens
def expand(values, dtype):
    torch.full((6,), 77).to(dtype)
    counts = torch.tensor([2, 3, 6], dtype=torch.int32)
    return expand_batch_to_tokens(torch.tensor(values, dtype=dtype), counts, 6, replace_from=0, replace_to=1).tolist()
print(json.dumps([expand([0.5, 0.0, 0.25], torch.float32), expand([5, 0, 9], torch.int32)]))
"""
RIGHT = [[0.5, 0.5, 1.0, 0.25, 0.25, 0.25], [5, 5, 1, 9, 9, 9]]


def expanded(**env: str) -> object:
    result = subprocess.run(
        [str(PYTHON), "-c", PROBE], env=os.environ | env, capture_output=True, text=True, check=False, timeout=280
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_with_the_plugin_every_token_gets_the_value_of_its_request() -> None:
    assert expanded() == RIGHT


def test_without_the_plugin_the_engine_still_has_the_bug() -> None:
    """When this fails, the pinned engine is repaired upstream and the plugin can go."""
    assert expanded(VLLM_PLUGINS="") != RIGHT
