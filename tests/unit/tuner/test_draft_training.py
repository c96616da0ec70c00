"""Prompts for fine-tuning a draft: text only, no turn twice, nothing of the hold-out, one file per sampling."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.study_desk import Desk, write_workload
from tests.unit.tuner.explain_desk import CORNERS, Try, calibration, study
from tuner.config import build_config
from tuner.errors import StudyError, UsageError
from tuner.exporters.draft_training import export_draft_training, gain_of_length
from tuner.store import Store
from workloads import read_workload, split_profiles

SYSTEM = {"role": "system", "content": "Be brief."}
TOOLS = [{"type": "function", "function": {"name": "look_up"}}]


def chat(number: int, session: str, messages: list[dict[str, str]], **body: Any) -> dict[str, Any]:
    return {
        "id": f"c{number}",
        "route": "chat",
        "session": session,
        "timestamp_s": number * 0.1,
        "body": {"model": "any", "messages": messages, "temperature": 0.7, "tools": TOOLS, **body},
    }


def conversation(session: int, **body: Any) -> list[dict[str, Any]]:
    """Two turns, the second with the first as its history."""
    first = [SYSTEM, {"role": "user", "content": f"Question {session}"}]
    second = [*first, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]
    number = session * 2
    return [chat(number, f"s{session}", first, **body), chat(number + 1, f"s{session}", second, **body)]


def store_of(directory: Path, lines: list[dict[str, Any]], *, measured: bool = True, draft: bool = True) -> Store:
    desk = Desk(directory).lay_out()
    write_workload(desk.workload, lines)
    config = build_config(
        workload=desk.workload,
        model=str(desk.target),
        draft=str(desk.draft) if draft else None,
        engine_argv=("engine", "serve"),
        study="s",
        out=directory / "runs",
    )
    store = Store.create(config)
    for record in study(CORNERS) if measured else ():
        store.write_record(record)
    return store


def rows_of(directory: Path) -> dict[str, list[dict[str, Any]]]:
    files = sorted(directory.glob("*.jsonl"))
    return {file.name: [json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in files}


def test_each_conversation_is_there_once_with_its_history_and_tools_and_none_of_the_hold_out(tmp_path: Path) -> None:
    lines = [line for n in range(12) for line in conversation(n)]
    store = store_of(tmp_path, lines)
    written = export_draft_training(store, tmp_path / "to")
    (rows,) = rows_of(tmp_path / "to").values()
    (profile,) = split_profiles(read_workload(store.config().workload))
    training, held_out = profile.split(store.config().held_out, store.config().seed)
    assert written.rows == len(rows)
    assert sorted(row["metadata"]["session"] for row in rows) == sorted(
        str(turns[0].session) for turns in training.sessions()
    )
    assert not {row["id"] for row in rows} & {request.id for request in held_out.requests}
    for row in rows:
        assert [message["role"] for message in row["conversations"]] == ["system", "user", "assistant", "user"]
        assert row["tools"] == TOOLS


def test_what_was_sampled_differently_is_regenerated_by_a_command_of_its_own(tmp_path: Path) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    lines = [line for n in range(12) for line in conversation(n)]
    lines += [line for n in range(12, 24) for line in conversation(n, temperature=0, **thinking)]
    store = store_of(tmp_path, lines)
    export_draft_training(store, tmp_path / "to")
    readme = (tmp_path / "to/README.md").read_text("utf-8")
    assert set(rows_of(tmp_path / "to")) == {"prompts-1.jsonl", "prompts-2.jsonl"}
    assert '"temperature": 0.7' in readme
    assert '"chat_template_kwargs": {"enable_thinking": true}' in readme
    assert readme.count("regenerate-responses") == 2


def test_text_that_no_draft_can_learn_from_is_left_out_and_said(tmp_path: Path) -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
    lines = [line for n in range(12) for line in conversation(n)]
    lines += [chat(100 + n, f"p{n}", picture) for n in range(12)]  # type: ignore[arg-type] # parts, as vLLM takes them
    written = export_draft_training(store_of(tmp_path, lines), tmp_path / "to")
    assert written.left_out["content other than text, which no draft sees"] > 0
    assert "image_url" not in (tmp_path / "to/prompts-1.jsonl").read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [({"draft": False}, UsageError, "no draft"), ({"measured": False}, StudyError, "measure one first")],
)
def test_nothing_is_written_where_there_is_nothing_to_train(
    tmp_path: Path, changes: dict[str, bool], error: type[Exception], word: str
) -> None:
    store = store_of(tmp_path, [line for n in range(4) for line in conversation(n)], **changes)
    with pytest.raises(error, match=word):
        export_draft_training(store, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_the_estimate_is_what_an_engine_with_that_acceptance_does() -> None:
    """Predicted from one engine, measured on another whose draft is better: the same costs, another length."""
    poor, good = (
        study((Try(k=7),), calibration(kind={"conditional": (one,)}))[0].measurements["chat"] for one in (0.5, 0.85)
    )
    predicted = gain_of_length(poor.metrics, good.metrics["acceptance_length"])
    assert predicted == pytest.approx(good.metrics["output_tok_s"] / poor.metrics["output_tok_s"], rel=0.2)
