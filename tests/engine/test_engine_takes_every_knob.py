"""The installed engine's own parser takes every command line that the `full` space can make. Nothing is launched."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from search_spaces import Checkpoint, Facts, Geometry, Gpu, load_release, load_space

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PYTHON = Path(__file__).resolve().parents[2] / ".engine" / "bin" / "python"
PARSE = """
import json, sys
from dataclasses import fields
from vllm.config.speculative import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
keys = {field.name for field in fields(SpeculativeConfig)}
for argv in json.load(sys.stdin):
    parsed = AsyncEngineArgs.from_cli_args(parser.parse_args(argv))
    unknown = set(parsed.speculative_config or {}) - keys
    assert not unknown, (argv, unknown)
"""
DRAFTS = ("DFlashDraftModel", "Qwen3DSparkModel", "Eagle3LlamaForCausalLM", "MedusaModel", "Qwen3ForCausalLM")


def command_lines(architecture: str) -> list[tuple[str, ...]]:
    """A spread of the `full` space for a draft of this class, as if there were four GPUs and a hybrid model."""
    shape = {"hidden_size": 128, "vocab_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 4096}
    facts = Facts(
        target=Checkpoint(path="target", architectures=("Qwen3_5",), n_predict=1, **shape),
        draft=Checkpoint(path="draft", architectures=(architecture,), draft_block=16, **shape),
        release=load_release("0.32.0")[0],
        device="gpu",
        gpus=(Gpu("test", 80 * 2**30, (9, 0)),) * 4,
        target_geometry=Geometry(layers=2, full_layers=1, recurrent_layers=1),
    )
    space = load_space("full").resolve(facts, fixed_args={}, env={})
    return [space.serve_config(values).to_argv()[1:] for values in space.combinations(120)]


def test_the_engine_parses_every_command_line() -> None:
    lines = [line for architecture in DRAFTS for line in command_lines(architecture)]
    flags = {word for line in lines for word in line if word.startswith("--")}
    assert {"--speculative-config", "--compilation-config", "--cudagraph-capture-sizes", "--block-size"} <= flags
    parsed = subprocess.run(
        [str(PYTHON), "-c", PARSE], input=json.dumps(lines), capture_output=True, text=True, check=False, timeout=280
    )
    assert parsed.returncode == 0, parsed.stderr[-2000:]
