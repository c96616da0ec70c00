"""`tune replay` as a user runs it, against a real server."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.replay.conftest import ScriptedServer

SECRET = "the cat sat on the mat"


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Six requests of two kinds, half a second of recorded time."""
    path = tmp_path / "traffic.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for line in range(6):
            body = {"messages": [{"role": "user", "content": SECRET}], "user": f"r{line}", "tokens": 8, "per_event": 4}
            record = {"id": f"r{line}", "timestamp_s": 0.02 * line, "endpoint": "/v1/chat/completions", "body": body}
            file.write(json.dumps({**record, "route": "even" if line % 2 else "odd"}) + "\n")
    return path


def replace_in(path: Path, old: str, new: str) -> None:
    """Change a file."""
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


async def tune_replay(*options: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tuner", "replay", *options],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.slow
async def test_each_profile_is_measured_and_accounted_for_without_any_text(
    server: "ScriptedServer", workload: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "requests.jsonl"
    options = ["--url", server.target.base_url, "--api-key-env", "KEY", "--profile-by", "route", "--json"]
    code, out, err = await tune_replay(str(workload), *options, "--per-request", str(lines), KEY="secret")
    assert (code, err) == (0, "")
    reports: list[dict[str, Any]] = json.loads(out)
    assert [(r["profile"], r["model"], r["valid"], r["accounting"]["completed"]) for r in reports] == [
        ("odd", "scripted", True, 3),
        ("even", "scripted", True, 3),
    ]
    assert all(r["metrics"]["tokens_per_chunk"] == 4 and r["metrics"]["completion_tokens"] == 24 for r in reports)
    assert {header["Authorization"] for header in server.headers} == {"Bearer secret"}
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["r0", "r2", "r4", "r1", "r3", "r5"]
    assert all(row["error"] is None and row["completion_tokens"] == 8 and row["e2e_s"] > 0 for row in rows)
    assert SECRET not in out + lines.read_text(encoding="utf-8")


@pytest.mark.slow
async def test_a_measurement_that_is_invalid_says_so_in_the_table_and_in_the_exit_code(
    server: "ScriptedServer", workload: Path
) -> None:
    replace_in(workload, '"tokens": 8', '"behaviour": "status_503"')
    code, out, _ = await tune_replay(
        str(workload), "--url", server.target.base_url, "--model", "m", "--load", "concurrency=2"
    )
    assert code == 1
    assert "INVALID   6 of 6 requests failed (http_503 x6" in out
    assert "6: 0 completed, 0 timed out, 0 abandoned (0 never sent), 6 http_503" in out


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--url", "http://127.0.0.1:9"], 3, "http://127.0.0.1:9 does not answer"),
        (["--url", "localhost:8000"], 2, "must start with http"),
        (["--url", "http://127.0.0.1:9", "--format", "native2"], 2, 'format "native2" is unknown'),
        (["--url", "http://127.0.0.1:9", "--time-unit", "days"], 2, 'the time unit "days" is unknown'),
        (["--url", "http://127.0.0.1:9", "--responses", "x.jsonl"], 2, "responses are joined with openai_batch only"),
        (["--url", "http://127.0.0.1:9", "--load", "burst=3"], 2, '"burst=3" is none of'),
        (
            ["--url", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH"],
            2,
            "NO_SUCH: that environment variable is not set",
        ),
    ],
)
@pytest.mark.slow
async def test_what_cannot_be_measured_is_one_sentence(
    workload: Path, options: list[str], code: int, words: str
) -> None:
    got, out, err = await tune_replay(str(workload), *options)
    assert (got, out) == (code, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
