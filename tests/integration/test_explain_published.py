"""The published case, -37% with prefix caching and DFlash together: an engine calibrated to it is explained."""

import json

import pytest

from tests.integration.study_desk import DRAFT_CONFIG, Desk, run_tune, write_checkpoint, write_workload
from tuner.explain import Explanation, explain_study
from tuner.explain.records import Finding
from tuner.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ENGINE = {"SIMULATED_CALIBRATION": "published", "SIMULATED_TIME_SCALE": "4"}
SPACE = """\
name: corners
extends: quick
knobs:
  num_speculative_tokens: {choices: [7]}
seeds:
  - {method: none, prefix_caching: false}
  - {method: dflash, num_speculative_tokens: 7, prefix_caching: false}
  - {method: dflash, num_speculative_tokens: 7, disable_eagle_block_drop: true}
"""
SHARED_WORDS = 1530  # about 3,400 tokens: two KV blocks of 1,648
WITH_DROP, WITHOUT_DROP = "dflash K=7", "dflash K=7, disable_eagle_block_drop=on"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The four corners and the block drop off, measured."""
    root = tmp_path_factory.mktemp("published")
    desk = Desk(root).lay_out()
    write_checkpoint(
        desk.target, architectures=["Qwen3ForCausalLM"], num_hidden_layers=32, max_position_embeddings=32768
    )
    write_checkpoint(desk.draft, **{**DRAFT_CONFIG, "block_size": 8})
    desk.space.write_text(SPACE, encoding="utf-8")
    shared = " ".join(f"w{number}" for number in range(SHARED_WORDS))
    body = {"model": "any", "max_tokens": 48, "temperature": 0, "ignore_eos": True}
    write_workload(
        desk.workload,
        [
            {"id": f"r{n}", "route": "chat", "body": {**body, "prompt": f"{shared} question {n} about it"}}
            for n in range(24)
        ],
    )
    changes = {"load": "concurrency=1", "trials": "5", "engine_args": "--tensor-parallel-size 4"}
    run = run_tune(*desk.options("published", root / "runs", **changes), "--no-tracking", env=ENGINE)
    assert run.returncode == 0, run.stderr
    return Store.open(root / "runs", "published")


def test_the_published_case_is_explained(store: Store) -> None:
    """One test, so that parallel test processes do not each run the study."""
    explanation = explain_study(store)
    (finding,) = explanation.findings
    _names_the_block_drop_and_nothing_else(explanation, finding)
    _counts_one_block_a_hit_and_none_with_the_drop_off(explanation)
    _predicts_the_recovery_within_5_points(store, finding)
    _is_printed_as_text_and_as_json(store, explanation)


def _names_the_block_drop_and_nothing_else(explanation: Explanation, finding: Finding) -> None:
    assert finding.rule == "last block dropped"
    assert "KV blocks of 1648 tokens" in finding.evidence
    assert "disable_eagle_block_drop" in finding.remedy
    causes = {row.both.label: row.causes for row in explanation.interactions}
    assert causes == {WITH_DROP: ("last block dropped",), WITHOUT_DROP: ()}


def _counts_one_block_a_hit_and_none_with_the_drop_off(explanation: Explanation) -> None:
    lost = {row.label: row.ideal_tokens - row.cached_tokens for row in explanation.cache_use}
    hits = 11  # of 12 requests the first finds nothing
    assert lost == {WITH_DROP: hits * 1648, WITHOUT_DROP: 0}


def _predicts_the_recovery_within_5_points(store: Store, finding: Finding) -> None:
    assert finding.recovery is not None
    measured = {
        record.plan.serve_config.label(): record.measurements["chat"].metrics["output_tok_s"]
        for record in store.records()
        if record.plan.phase != "confirm"
    }
    loss = 1 - measured[WITH_DROP] / measured[WITHOUT_DROP]
    predicted_loss = 1 - 1 / finding.recovery.value
    assert loss == pytest.approx(0.37, abs=0.08)  # what was published
    assert predicted_loss == pytest.approx(loss, abs=0.05)


def _is_printed_as_text_and_as_json(store: Store, explanation: Explanation) -> None:
    out = ("--out", str(store.directory.parent))
    text = run_tune("explain", "published", *out)
    assert (text.returncode, text.stderr) == (0, "")
    assert explanation.findings[0].title in " ".join(text.stdout.split())
    document = run_tune("explain", "published", *out, "--json")
    assert Explanation.model_validate(json.loads(document.stdout)) == explanation
