"""The adapter to NVIDIA's library, on a stand-in of that library with its layout, loaded by the real nvidia-ml-py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runners.gpu import Recording, open_nvml
from tests.stand_in_driver import build_stand_in

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `python -m runners.gpu` prints on a host whose driver is the stand-in."""
    driver = build_stand_in(tmp_path_factory.mktemp("driver"))
    made = subprocess.run(
        [sys.executable, "-m", "runners.gpu", "--seconds", "0.1"],
        env={**os.environ, **driver},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def test_what_is_printed_is_a_recording(told: dict[str, Any]) -> None:
    assert Recording.model_validate(told).driver_version == "580.95.05"


def test_whole_gpus_and_instances_are_told_apart(told: dict[str, Any]) -> None:
    first, second, instance = (recorded["gpu"] for recorded in told["gpus"])
    assert (first["name"], first["memory_bytes"], first["compute_capability"]) == ("Stand-In GPU", 80 << 30, [9, 0])
    assert (first["nvlink_peers"], second["nvlink_peers"]) == ([1], [0])
    assert (first["cpus"], first["numa_node"], first["power_limit_w"]) == ([0, 2], None, 700.0)
    assert [gpu["mig_parent"] for gpu in (first, second, instance)] == [False, True, False]
    assert (instance["uuid"], instance["mig_instance"], instance["index"]) == ("MIG-stand-in", True, 1)


def test_units_are_converted_and_what_is_not_supported_is_null(told: dict[str, Any]) -> None:
    first, _, instance = (recorded["samples"][0] for recorded in told["gpus"])
    assert first["utilization"] == 0.42
    assert (first["power_w"], first["sm_clock_hz"], first["temperature_c"]) == (350.5, 1.98e9, 61.0)
    assert sorted(first["reasons"]) == ["hardware_thermal", "power_cap"]
    later = told["gpus"][0]["samples"][1]
    assert later["energy_j"] > first["energy_j"] >= 1.0
    assert instance == {
        **dict.fromkeys(("utilization", "power_w", "energy_j", "sm_clock_hz", "temperature_c")),
        "memory_used_bytes": 3 << 30,
        "reasons": [],
    }


def test_processes_keep_their_memory_or_say_that_it_is_unknown(told: dict[str, Any]) -> None:
    assert told["gpus"][0]["processes"] == [
        {"pid": 11, "memory_bytes": 2 << 30},
        {"pid": 12, "memory_bytes": None},
    ]


def test_a_host_without_a_driver_is_no_error() -> None:
    if open_nvml() is not None:
        pytest.skip("this host has a driver")
    made = subprocess.run([sys.executable, "-m", "runners.gpu"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout, made.stderr) == (2, "", "no NVIDIA driver on this host\n")
