"""Calibration files: the shipped ones load, wrong ones are refused with file and key."""

import json
from pathlib import Path

import pytest

from runners.simulated.calibration import SHIPPED, Calibration, calibration_from_environment, load_calibration
from runners.simulated.errors import CalibrationError


@pytest.mark.parametrize("name", sorted(file.stem for file in SHIPPED.glob("*.yaml")))
def test_shipped_calibrations_load_and_say_where_they_come_from(name: str) -> None:
    calibration = load_calibration(name)
    assert calibration.name == name
    assert len(calibration.provenance) > 20


def test_missing_keys_take_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ncosts: {step_s: 0.02}\n")
    calibration = load_calibration(str(file))
    assert calibration.costs.step_s == 0.02
    assert calibration.memory == Calibration().memory


def test_json_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"kinds": [{"name": "all", "conditional": [0.5]}]}))
    assert load_calibration(str(file)).kinds[0].conditional == (0.5,)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("costs: {stepp_s: 1}", "unknown key costs.stepp_s"),
        ("costs: {step_s: fast}", "costs.step_s is 'fast'"),
        ("costs: 7", "costs. must be a mapping"),
        ("max_model_len: 1.5", "max_model_len is 1.5"),
        ("max_model_len: true", "max_model_len is True"),
        ("costs: {verify_curve: [[2, 0.0], [1, 0.0]]}", "costs.verify_curve"),
        ("costs: {verify_curve: [[1, 0.0, 3]]}", "costs.verify_curve"),
        ("kinds: [{name: a, match: '('}, {name: b}]", "not a regular expression"),
        ("kinds: [{name: a, conditional: [1.2]}]", "kinds[a].conditional"),
        ("kinds: [{name: a, match: code}]", "the last entry of kinds"),
        ("- 1", "the file must be a mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_wrong_files_are_refused_with_file_and_key(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(content)
    with pytest.raises(CalibrationError) as refused:
        load_calibration(str(file))
    assert str(file) in str(refused.value)
    assert words in str(refused.value)


def test_broken_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    file.write_text("{")
    with pytest.raises(CalibrationError, match="not JSON"):
        load_calibration(str(file))


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(CalibrationError, match=r"cpu-demo, default"):
        load_calibration("no-such-machine")


def test_the_command_line_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CALIBRATION", "cpu-demo")
    assert calibration_from_environment(None).name == "cpu-demo"
    assert calibration_from_environment("default").name == "default"
