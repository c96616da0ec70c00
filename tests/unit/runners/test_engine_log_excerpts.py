"""One log excerpt per failure class: it gets this class, names the cause, says a remedy, and is treated as documented.

The excerpts are our own; the messages in them are those of vLLM's, PyTorch's and transformers' sources.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from runners.errors import FailureKind
from runners.failures import classify_failure, read_log

DATA = Path(__file__).parents[2] / "data" / "engine_logs"
PAGE = Path(__file__).parents[3] / "docs" / "engines.md"
# Told by the runner itself, without a log: see tests/integration/test_local_runner.py and test_container_runner.py.
WITHOUT_LOG = {"bad_command", "foreign_server", "killed", "no_completion", "workdir"}
NAMED = {
    "bad_flag": "--num-speculative-tokenz 7",
    "crash": "IndexError: index 17 is out of bounds for dimension 0 with size 16",
    "draft_mismatch": "[4096, 20480]",
    "driver": "CUDA driver version is insufficient",
    "dtype": "compute capability of at least 8.0",
    "gpu_busy": "10.12/79.19 GiB",
    "hung": "execute_model",
    "kv_too_small": "24832",
    "nccl": "NCCL error: unhandled system error",
    "tokenizer": "'/models/target'",
    "unsupported": "DFlash candidate-head drafts",
    "wrong_output": "NaNs detected in logits",
}


def documented() -> dict[str, str]:
    """Failure class to treatment, from the table of docs/engines.md."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (teach|retry|either) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


def test_there_is_an_excerpt_and_a_documented_treatment_for_every_class() -> None:
    kinds = set(get_args(FailureKind))
    assert {path.stem for path in DATA.glob("*.log")} == kinds - WITHOUT_LOG
    assert documented().keys() == kinds


@pytest.mark.parametrize("kind", sorted(set(get_args(FailureKind)) - WITHOUT_LOG))
def test_the_excerpt_is_told_apart_from_all_others_and_treated_as_documented(kind: str) -> None:
    failure = classify_failure(read_log(DATA / f"{kind}.log"), 1)
    assert failure.kind == kind
    assert NAMED.get(kind, "") in failure.message
    assert "\n" not in failure.message
    assert documented()[kind] == ("retry" if failure.infrastructure else "teach")
    assert kind == "crash" or re.search(
        r"lower|raise|remove|use|choose|give|free|set|put|check|end|launch|download|allow", failure.message
    )


@pytest.mark.parametrize("kind", ["oom_weights", "oom_kv", "oom_graph_capture", "disk_full", "nccl"])
def test_a_class_does_not_depend_on_what_other_processes_wrote_afterwards(kind: str) -> None:
    log = read_log(DATA / f"{kind}.log") + "(Worker pid=9) INFO 11-30 09:15:00 [x.py:1] shutting down\n" * 50
    assert classify_failure(log, 1).kind == kind
