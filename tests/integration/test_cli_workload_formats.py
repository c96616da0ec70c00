"""`tune plan` and `tune inspect` take any format, and say what of it cannot be tuned on or replayed."""

import json
from pathlib import Path

import pytest

from tests.integration.study_desk import Desk
from tuner.cli import run

FILES = Path(__file__).parents[1] / "data" / "formats"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 20 * n, "input_length": 64, "output_length": 8} for n in range(24)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_trace_without_text_is_planned_with_the_warning_that_k_cannot_be_tuned(
    desk: Desk, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = desk.options("s", tmp_path / "runs", workload=str(trace))
    assert run(["plan", *options, "--format", "guidellm_replay", "--time-unit", "s", "--json"]) == 0
    warnings = " ".join(json.loads(capsys.readouterr().out)["warnings"])
    assert "acceptance, and so num_speculative_tokens (K), cannot be tuned on it" in warnings


def test_an_unclear_unit_is_bad_input_that_names_the_option(
    desk: Desk, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *desk.options("s", tmp_path / "runs", workload=str(trace))]) == 2
    assert "say it with --time-unit" in capsys.readouterr().err


def test_inspect_joins_a_batch_with_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    batch, responses = FILES / "openai_batch.jsonl", FILES / "openai_batch.responses.jsonl"
    assert run(["inspect", str(batch), "--responses", str(responses), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["whole"]["output_tokens"]["count"] == 2
