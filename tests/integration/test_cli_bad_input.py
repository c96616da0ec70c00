"""Bad input ends in one sentence on standard error and the documented exit code, and creates nothing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.study_desk import DRAFT_CONFIG, SPACE, Desk, line, run_tune, write_checkpoint
from tuner.cli import run

Refused = Callable[..., str]


@pytest.fixture
def refused(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs `tune` with changed options; returns its sentence on standard error."""

    def refuse(*words: str, **changes: str | None) -> str:
        out = tmp_path / "runs"
        assert run([*desk.options("s", out, **changes), *words]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        first, *more = printed.err.splitlines()
        assert first.startswith("tune: ")
        # A list of bad lines of the workload is the only thing that may follow.
        assert [row for row in more if not row.startswith("  ")] == []
        assert "Traceback" not in printed.err
        assert not out.exists()
        return printed.err

    return refuse


def traffic(directory: Path, *lines: Any, good: int = 0) -> str:
    """A workload of given lines (text as it is, the rest as JSON) after some good ones."""
    rows = [json.dumps(line(n, "code")) for n in range(good)]
    rows += [row if isinstance(row, str) else json.dumps(row) for row in lines]
    path = directory / "bad.jsonl"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return str(path)


def test_a_missing_workload(refused: Refused, tmp_path: Path) -> None:
    assert str(tmp_path / "gone.jsonl") in refused(workload=str(tmp_path / "gone.jsonl"))


def test_a_directory_as_workload(refused: Refused, tmp_path: Path) -> None:
    assert str(tmp_path) in refused(workload=str(tmp_path))


def test_an_unreadable_workload(refused: Refused) -> None:
    # The start of a process's memory is not mapped: reading it fails even for root.
    assert "/proc/self/mem" in refused(workload="/proc/self/mem")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00\x01", b"PK\x03\x04\x00\x00", b"a,b\n1,2\n"])
def test_a_workload_without_a_request(refused: Refused, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    assert str(path) in refused(workload=str(path))


def without_prompt(number: int) -> dict[str, Any]:
    request = line(number, "code")
    del request["body"]["prompt"]
    return request


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("{broken", "bad.jsonl:3: "),
        ("[]", "bad.jsonl:3: "),
        ({**line(2, "code"), "tempreature": 1}, 'bad.jsonl:3: unknown field "tempreature"'),
        (without_prompt(2), "bad.jsonl:3: "),
        (line(2, "code", at_s=-1.0), "bad.jsonl:3: "),
        (line(2, "code", at_s=0.05), "bad.jsonl:3: "),
    ],
    ids=["broken JSON", "no object", "unknown field", "no prompt", "negative time", "time runs back"],
)
def test_too_many_bad_lines_stop_with_the_first_one_s_number(
    refused: Refused, tmp_path: Path, bad: Any, complaint: str
) -> None:
    message = refused(workload=traffic(tmp_path, bad, good=2))
    assert complaint in message
    assert "bad.jsonl" in message


def test_few_bad_lines_are_counted_and_reported(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = traffic(tmp_path, "{broken", good=20)
    words = desk.options("s", tmp_path / "runs", workload=workload, max_bad_share="0.1")
    assert run([*words, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "1 lines of" in printed.out
    assert "line 21" in printed.out
    assert not (tmp_path / "runs").exists()


def test_a_model_that_is_not_there(refused: Refused, tmp_path: Path) -> None:
    assert f"{tmp_path / 'gone'}: no such directory" in refused(model=str(tmp_path / "gone"))


def test_a_model_without_config(refused: Refused, tmp_path: Path) -> None:
    assert "no config.json in it" in refused(model=str(tmp_path))


def test_a_draft_that_is_not_there(refused: Refused, tmp_path: Path) -> None:
    assert f"{tmp_path / 'gone'}: no such directory" in refused(draft=str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_size": 256}, "hidden size 256 against the target's 128"),
        ({"vocab_size": 5000}, "vocabulary 5000 against the target's 4096"),
        ({"dflash_config": {"target_layer_ids": [40]}}, "reads target layers [40], the target has 32"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "not a DFlash draft"),
        ({"block_size": 1}, "draft block 1 leaves no token"),
        ({"block_size": None}, "num_speculative_tokens has no upper end"),
    ],
    ids=["hidden size", "vocabulary", "layers", "architecture", "block of 1", "no block"],
)
def test_a_draft_that_does_not_fit(refused: Refused, tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    draft = write_checkpoint(tmp_path / "draft", **{**DRAFT_CONFIG, **change})
    assert complaint in refused(draft=str(draft), space="quick")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"objective": "speed"}, "--objective 'speed' is unknown"),
        ({"slo": "ttft_p99=fast"}, "--slo 'ttft_p99=fast'"),
        ({"load": "concurrency=0"}, "--load"),
        ({"load": "fast"}, "--load"),
        ({"temperature": "hot"}, "--temperature 'hot'"),
        ({"profile_by": "colour"}, "colour"),
        ({"trials": "1"}, "--trials"),
        ({"trials": "many"}, "trials"),
        ({"blocks": "50"}, "lower --blocks"),
        ({"budget": "soon"}, "--budget 'soon'"),
        ({"engine_env": "A"}, "--engine-env 'A'"),
        ({"engine_args": "--port 1"}, "--port is set by the tuner"),
        ({"engine_args": "'"}, "--engine-args"),
        ({"engine_command": "/nowhere/vllm serve"}, "--engine-command"),
        ({"engine_python": "python3"}, "give one"),
        ({"engine_version": "0.20.0"}, "older than 0.28"),
        ({"space": "gone.yaml"}, "search space"),
        ({"baseline": "gone.yaml"}, "--baseline"),
        ({"workload": None}, "workload"),
        ({"model": None}, "model"),
    ],
)
def test_a_wrong_option_is_named(refused: Refused, changes: dict[str, str | None], complaint: str) -> None:
    assert complaint in refused(**changes)


def test_a_study_s_name_is_no_path(refused: Refused) -> None:
    assert "--study" in refused("--study", "../x")


def test_an_unknown_option_is_named(refused: Refused) -> None:
    assert "--trails" in refused("--trails", "3")


@pytest.mark.parametrize("content", ["- a\n", "a: [\n", "model: x\nport: [1\n"])
def test_a_baseline_that_is_no_serve_config(refused: Refused, tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content, encoding="utf-8")
    assert str(path) in refused(baseline=str(path))


def test_a_broken_space_names_file_and_field(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE + "fixed: {prefix_cache: true}\n", encoding="utf-8")
    message = refused(space=str(path))
    assert str(path) in message
    assert "fixed.prefix_cache" in message


@pytest.mark.parametrize("command", ["resume", "show", "export", "sync"])
def test_a_study_that_is_not_there(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "gone", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("tune: no study 'gone' in ")
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_process_itself_ends_with_the_code_and_one_line(desk: Desk, tmp_path: Path) -> None:
    ended = run_tune(*desk.options("s", tmp_path / "runs", workload="gone.jsonl"), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("tune: ")
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(desk: Desk, tmp_path: Path) -> None:
    ended = run_tune(*desk.options("s", tmp_path / "runs", workload="gone.jsonl"), "--debug", cwd=tmp_path)
    assert ended.returncode != 0
    assert "Traceback" in ended.stderr


def test_help_imports_nothing_heavy() -> None:
    words = [sys.executable, "-P", "-X", "importtime", "-m", "tuner", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "--workload" in shown.stdout
    imported = {row.rpartition("|")[2].strip() for row in shown.stderr.splitlines() if row.startswith("import time:")}
    heavy = {"optuna", "mlflow", "numpy", "scipy", "pandas", "sqlalchemy", "aiohttp", "pydantic", "rich.markdown"}
    assert "cyclopts" in imported
    assert imported & heavy == set()


def test_a_dry_run_shows_the_plan_and_starts_nothing(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*desk.options("s", tmp_path / "runs"), "--dry-run"]) == 0
    printed = capsys.readouterr()
    for piece in ("24 requests", "profile   code: 12 requests", "vLLM 0.32.0", "code at concurrency=2"):
        assert piece in printed.out
    assert printed.err == ""
    assert not (tmp_path / "runs").exists()


def test_inspect_tells_profiles_as_json(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(desk.workload), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {name: p["requests"] for name, p in document["profiles"].items()} == {"code": 12, "chat-v2": 12}
