"""What is on disk survives a crash, and what is damaged says so."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.tuner.made import dflash, measurement, record
from tuner.config import TuneConfig, build_config
from tuner.errors import StudyError
from tuner.store import Store, file_name, write_atomically


@pytest.fixture
def config(tmp_path: Path) -> TuneConfig:
    return build_config(workload="w.jsonl", model="m", engine_argv=("vllm", "serve"), study="s", out=tmp_path)


@pytest.fixture
def store(config: TuneConfig) -> Store:
    return Store.create(config)


def test_a_study_comes_back_as_it_was_written(store: Store, config: TuneConfig) -> None:
    done = record(3, "search/0", dflash(7), measurement("code", 1.5))
    store.write_plan(done.plan)
    store.write_measurement(3, done.measurements["code"])
    store.write_record(done)
    again = Store.open(config.out, "s")
    assert config == again.config()
    assert {"search/0": done.plan} == again.plans()
    assert done.measurements == again.measurements(3)
    assert [done] == again.records()


def test_a_file_that_was_being_written_when_the_tuner_died_is_ignored(store: Store) -> None:
    done = record(3, "search/0", dflash(7), measurement("code", 1.5))
    store.write_plan(done.plan)
    store.write_measurement(3, done.measurements["code"])
    directory = store.trial_directory(3)
    (directory / ".trial.json.tmp").write_text('{"plan": ', encoding="utf-8")
    (directory / "measurements" / ".chat.json.tmp").write_text('{"con', encoding="utf-8")
    (store.trial_directory(4)).mkdir()
    (store.trial_directory(4) / ".plan.json.tmp").write_text("", encoding="utf-8")
    assert store.records() == []
    assert list(store.measurements(3)) == ["code"]
    assert list(store.plans()) == ["search/0"]


def test_a_reader_never_sees_half_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "value"
    write_atomically(path, "old" * 1000)
    with path.open(encoding="utf-8") as reader:
        write_atomically(path, "new")
        assert reader.read() == "old" * 1000
    assert path.read_text(encoding="utf-8") == "new"
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"plan": 1}', "\x00", "null"])
def test_a_damaged_record_is_named(store: Store, content: str) -> None:
    path = store.trial_directory(3) / "trial.json"
    write_atomically(path, content)
    with pytest.raises(StudyError) as refused:
        store.records()
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_field_is_damage_too(store: Store) -> None:
    done = record(3, "search/0", dflash(7), measurement("code", 1.5))
    text = done.model_dump_json().replace('"status"', '"extra":1,"status"', 1)
    write_atomically(store.trial_directory(3) / "trial.json", text)
    with pytest.raises(StudyError, match="Extra inputs"):
        store.records()


def test_a_study_is_not_begun_twice(store: Store, config: TuneConfig) -> None:
    assert store.directory.is_dir()
    with pytest.raises(StudyError, match=r"study 's' exists in .*; go on with `tune resume s`"):
        Store.create(config)


def test_a_study_that_is_not_there_is_told_with_those_that_are(store: Store, config: TuneConfig) -> None:
    assert store.directory.is_dir()
    with pytest.raises(StudyError, match=r"no study 't' in .*there are: s"):
        Store.open(config.out, "t")


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked = build_config(
        workload="w.jsonl", model="m", engine_argv=("vllm", "serve"), study="s", out=tmp_path / "file"
    )
    with pytest.raises(StudyError, match="choose another --out"):
        Store.create(blocked)


HOLD = """
import sys, time
from pathlib import Path
from tuner.store import Store
with Store(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_study_that_another_process_runs_is_locked_until_that_process_is_gone(store: Store) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(store.directory)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StudyError, match="study 's' is being run by another tuner"), store.lock():
            pass
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout:
            holder.stdout.close()
    with store.lock():
        pass


NAMES = ["code", "code/t0", "code_t0", "code t0", "客服", "代码", "..", ".", "", "a" * 300, "A", "a\n", "../../x", "-x"]


def test_condition_names_become_distinct_plain_file_names() -> None:
    files = [file_name(name) for name in NAMES]
    assert len(set(files)) == len(NAMES)
    assert all("/" not in f and f not in {"", ".", ".."} and len(f) < 100 and f.isascii() for f in files)
    assert file_name("code") == "code"


def test_conditions_with_similar_names_are_kept_apart(store: Store) -> None:
    for number, name in enumerate(NAMES):
        store.write_measurement(3, measurement(name, float(number)))
    assert {name: float(i) for i, name in enumerate(NAMES)} == {
        name: m.metrics["output_tok_s"] for name, m in store.measurements(3).items()
    }
