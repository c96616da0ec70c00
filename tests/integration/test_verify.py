"""`tune verify` on simulated engines: what is better, what is worse, what the exit code says."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.study_desk import DRAFT_CONFIG, Desk, engines_of, run_tune, write_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def serve_yaml(desk: Desk, tmp_path: Path) -> Path:
    """An export as a deployment would have it."""
    return write_config(tmp_path / "serve.yaml", desk, k=7)


def write_config(path: Path, desk: Desk, *, k: int) -> Path:
    speculative = {"method": "dflash", "model": str(desk.draft), "num_speculative_tokens": k}
    path.write_text(yaml.safe_dump({"model": str(desk.target), "speculative-config": speculative}), encoding="utf-8")
    return path


def verify(
    desk: Desk, config: Path, out: Path, *words: str, rounds: str = "2", **engine: str
) -> tuple[int, list[dict[str, Any]], str]:
    unused = {"draft", "space", "trials", "finalists"}
    given = desk.options("verify", out, rounds=rounds, profile_by="none", engine_args="--max-model-len 2048")
    options = [
        w for name, value in zip(given[::2], given[1::2], strict=True) if name[2:] not in unused for w in (name, value)
    ]
    run = run_tune("verify", str(config), *options, "--json", *words, env=engine)
    assert engines_of(out, "verify") == []
    return run.returncode, json.loads(run.stdout or "[]"), run.stderr


def test_a_gain_that_is_still_there_exits_0_with_its_interval(desk: Desk, serve_yaml: Path, tmp_path: Path) -> None:
    code, (found,), stderr = verify(desk, serve_yaml, tmp_path / "runs")
    assert (code, stderr, found["verdict"]) == (0, "", "better")
    assert 1 < found["effect"]["low"] <= found["effect"]["gain"] <= found["effect"]["high"]
    assert found["reference"] == "no speculation"


def test_an_engine_on_which_speculation_changes_outputs_exits_6(desk: Desk, serve_yaml: Path, tmp_path: Path) -> None:
    code, (found,), stderr = verify(desk, serve_yaml, tmp_path / "runs", SIMULATED_FAULTS="wrong_output")
    assert (code, found["verdict"], found["outputs"]["verdict"]) == (6, "worse", "changed")
    assert "run a new study" in stderr


def test_a_new_draft_is_compared_with_the_files_own(desk: Desk, serve_yaml: Path, tmp_path: Path) -> None:
    """Of a draft trained for 3 tokens, K=7 asks too much; on a loaded host three rounds may not suffice to say so."""
    new = write_checkpoint(tmp_path / "new-draft", **{**DRAFT_CONFIG, "block_size": 4})
    code, (found,), _ = verify(desk, serve_yaml, tmp_path / "runs", "--draft", str(new), rounds="3")
    assert (code, found["verdict"]) in {(6, "worse"), (0, "same")}
    assert found["effect"]["gain"] < 1
    assert found["acceptance_length"] < found["reference_acceptance_length"]
    assert (found["contender"], found["reference"]) == ("dflash K=7, draft=new-draft", "dflash K=7")


def test_a_config_compared_with_itself_is_bad_usage(desk: Desk, serve_yaml: Path, tmp_path: Path) -> None:
    code, found, stderr = verify(desk, serve_yaml, tmp_path / "runs", "--against", str(serve_yaml))
    assert (code, found) == (2, [])
    assert "the same engine" in stderr
