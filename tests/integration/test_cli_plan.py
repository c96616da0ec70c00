"""`tune plan` says what a study would do before anything is started, as text and as JSON."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.study_desk import DRAFT_CONFIG, Desk, FinishedStudy, write_checkpoint
from tests.unit.search_spaces.test_kv_blocks import QWEN_27B
from tuner.breakdown import ENGINE_START, ENGINE_STOP
from tuner.cli import run

GIB = 2**30
Planned = Callable[..., dict[str, Any]]


@pytest.fixture
def planned(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Planned:
    """Runs `tune plan --json` with changed options."""

    def plan(*words: str, **changes: str | None) -> dict[str, Any]:
        assert run(["plan", *desk.options("s", tmp_path / "runs", **changes), "--json", *words]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert not (tmp_path / "runs").exists()
        return document

    return plan


@pytest.fixture
def hybrid(tmp_path: Path) -> dict[str, str]:
    """A model of 27B parameters with recurrent layers and its DFlash2 draft, as far as files tell of them."""
    shape = {"hidden_size": 5120, "vocab_size": 248320, "max_position_embeddings": 32768}
    target = write_checkpoint(tmp_path / "27b", **{**shape, **QWEN_27B["text_config"]}, architectures=["Qwen3_5"])
    draft = write_checkpoint(
        tmp_path / "draft", **{**shape, **DRAFT_CONFIG, "block_size": 8}, num_attention_heads=32, head_dim=128
    )
    for directory, size in ((target, int(51.7 * GIB)), (draft, int(3.6 * GIB))):
        index = {"metadata": {"total_size": size}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return {"model": str(target), "draft": str(draft)}


@pytest.mark.slow
def test_a_plan_for_gpus_that_are_not_here_judges_by_them(planned: Planned, hybrid: dict[str, str]) -> None:
    plan = planned(space="memory", gpu="4x24GiB@8.9", price_per_gpu_hour="2", load="concurrency=1", **hybrid)
    reasons = {one["rule"]: one["example"] for one in plan["refused"]}
    assert "needs 8 GPUs; an engine may use 4" in reasons["gpus_are_enough"]
    assert "on each GPU exceed the" in reasons["weights_fit"]
    assert "on compute capability 8.9 (needs 9.x or 10.x)" in reasons["backend_takes_kv_dtype"]
    assert "changes nothing: this hybrid's KV block is" in reasons["hybrid_block_is_what_it_says"]
    assert any("784 at K=0" in note and "832 at K=7" in note for note in plan["notes"])
    assert any("100% of the prompts are shorter than one KV block" in note for note in plan["notes"])
    estimate = plan["estimate"]
    assert estimate["gpus"] == 4
    assert estimate["cost"] == pytest.approx(2 * estimate["gpu_hours"])
    assert estimate["gpu_hours"] == pytest.approx(4 * estimate["hours"])


def test_every_combination_is_judged_where_there_are_few(planned: Planned) -> None:
    plan = planned()
    assert plan["combinations"] == plan["looked_at"] == 2 * 3 * 2
    assert plan["knobs"]["num_speculative_tokens"] == [3, 7, 15]
    assert [point["step"] for point in plan["starting_points"]] == ["baseline", "recipe"]
    assert [point["refused"] for point in plan["starting_points"]] == [None, None]


@pytest.mark.slow
def test_assumed_times_scale_the_estimate_and_a_budget_limits_it(planned: Planned) -> None:
    slow, fast = (planned(start_time=time)["estimate"] for time in ("10m", "1m"))
    launches = slow["search_launches"] + slow["confirm_launches"]
    assert slow["launch_hours"] - fast["launch_hours"] == pytest.approx(launches * 540 / 3600)
    assert slow["replay_hours"] == fast["replay_hours"]
    halved = (
        planned(decode_rate="10")["estimate"]["replay_hours"] / planned(decode_rate="20")["estimate"]["replay_hours"]
    )
    assert 1.5 < halved <= 2
    limited = planned(start_time="10m", budget="30m")["estimate"]
    assert (limited["hours"], limited["limited_by_budget"]) == (0.5, True)


@pytest.mark.slow
def test_an_earlier_study_of_the_model_replaces_assumed_times(
    finished: FinishedStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = finished.out / "damaged"
    damaged.mkdir()
    (damaged / "study.json").write_text("{", encoding="utf-8")
    try:
        assert run(["plan", *Desk(Path(finished.desk)).options("next", finished.out), "--json"]) == 0
    finally:
        shutil.rmtree(damaged)
    estimate = json.loads(capsys.readouterr().out)["estimate"]
    records = [record for record in finished.store().records() if record.status == "measured"]
    launch_s = sum(r.seconds[ENGINE_START] + r.seconds[ENGINE_STOP] for r in records) / len(records)
    launches = estimate["search_launches"] + estimate["confirm_launches"]
    assert estimate["launch_hours"] == pytest.approx(launches * launch_s / 3600)
    assert "as measured in the study main, simulated" in estimate["assumptions"][0]


def test_what_is_not_offered_is_said(planned: Planned) -> None:
    left_out = planned(space="speculation", draft=None)["left_out"]
    assert "give --draft" in left_out["method"]
    fixed = planned(space="dflash", engine_args="--max-num-seqs 8")
    assert fixed["left_out"]["max_num_seqs"] == "--engine-args sets --max-num-seqs for every launch"
    assert "max_num_seqs" not in fixed["knobs"]


def test_the_text_says_the_same_in_lines(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = desk.options("s", tmp_path / "runs", space="dflash", gpu="24GiB", price_per_gpu_hour="1.5")
    assert run(["plan", *words]) == 0
    heads = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert {"workload", "engine", "gpus", "search", "knob", "refused", "start", "estimate", "assumed"} <= heads


def test_a_draft_for_another_method_than_the_space_searches_is_a_warning(tmp_path: Path, planned: Planned) -> None:
    eagle = write_checkpoint(tmp_path / "eagle", architectures=["Eagle3LlamaForCausalLM"], num_hidden_layers=1)
    plan = planned(draft=str(eagle))
    assert any("its config.json makes it a draft for eagle3" in warning for warning in plan["warnings"])
    assert planned(draft=str(eagle), space="speculation")["knobs"]["method"] == ["none", "ngram", "suffix", "eagle3"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"gpu": "24"}, "--gpu '24' is not COUNTxMEMORY@CAPABILITY such as 4x24GiB@8.9"),
        ({"gpu": "0x24GiB"}, "--gpu '0x24GiB'"),
        ({"price_per_gpu_hour": "-1"}, "--price-per-gpu-hour -1 must be above 0"),
        ({"start_time": "soon"}, "--start-time 'soon' is not a duration"),
        ({"space": "quikc"}, "not one of the presets"),
    ],
)
def test_bad_options_are_one_sentence(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], complaint: str
) -> None:
    assert run(["plan", *desk.options("s", tmp_path / "runs", **change)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err
    assert len(printed.err.splitlines()) == 1
