"""A study on a host with GPUs: `tune` and its engines are processes, NVIDIA's library is a stand-in with its layout.

The engine is the simulated one behind a script of another name, because what is openly simulated uses no GPU.
"""

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.integration.study_desk import Desk, run_tune
from tests.stand_in_driver import build_stand_in
from tuner.store import Store

pytestmark = pytest.mark.slow

SCRIPT = """\
{{ echo "$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"; grep Cpus_allowed_list /proc/self/status; }} > {seen}
exec {python} -P -m runners.simulated serve "$@"
"""
IDLE = {"STAND_IN_USED_MIB": "512", "STAND_IN_UTILIZATION": "0", "STAND_IN_REASONS": "0"}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a host with the stand-in's GPUs, all idle."""
    return {**build_stand_in(tmp_path_factory.mktemp("driver")), **IDLE}


@pytest.fixture
def command(tmp_path: Path) -> str:
    script = tmp_path / "engine.sh"
    text = SCRIPT.format(seen=shlex.quote(str(tmp_path / "seen")), python=shlex.quote(sys.executable))
    script.write_text(text, encoding="utf-8")
    return f"sh {shlex.quote(str(script))}"


def test_engines_get_their_gpus_and_measurements_say_what_these_did(
    tmp_path: Path, driver: dict[str, str], command: str
) -> None:
    """On a GPU that throttles, which makes every measurement invalid and the study end without an answer."""
    desk = Desk(tmp_path).lay_out()
    small: dict[str, str | None] = {"draft": None, "profile_by": "none", "trials": "2", "requests": "4"}
    options = desk.options("s", tmp_path / "runs", engine_command=command, gpus="0", engine_version="0.33.0", **small)
    done = run_tune(*options, "--no-tracking", env={**driver, "STAND_IN_REASONS": "0x44"})
    assert done.returncode == 1, done.stdout + done.stderr
    order, cores = (tmp_path / "seen").read_text().splitlines()
    assert order == "PCI_BUS_ID 0"
    allowed = os.sched_getaffinity(0)
    near = allowed & {0, 2}  # the stand-in's
    if near and near != allowed:
        assert cores.split() == ["Cpus_allowed_list:", ",".join(map(str, sorted(near)))]
    store = Store.open(tmp_path / "runs", "s")
    measurements = [m for record in store.records() for m in record.measurements.values()]
    assert measurements
    for measurement in measurements:
        (problem,) = measurement.problems
        assert problem.startswith(
            "GPU 0 throttled in 100% of the readings (hardware thermal, up to 61 degrees Celsius)"
        )
        assert measurement.attempts == 2
        assert measurement.metrics["gpu_power_mean_w"] == pytest.approx(350.5)
        assert measurement.metrics["gpu_memory_used_max_bytes"] == 512 << 20
        assert measurement.metrics["gpu_energy_j"] > 0
        assert measurement.metrics["gpu_throttled_share"] == measurement.metrics["gpu_power_capped_share"] == 1
        assert measurement.metrics["gpu_telemetry_cpu_share"] < 0.01
    provenance = store.provenance()
    assert provenance is not None
    assert provenance.gpus == ("Stand-In GPU, 81920",)
    assert "INVALID: GPU 0 throttled" in done.stdout
    assert "the engine says that it is vLLM 0.32.0+simulated, but the plan was made for 0.33.0" in done.stdout


def test_gpus_that_cannot_be_used_are_told_before_anything_starts(
    tmp_path: Path, driver: dict[str, str], command: str
) -> None:
    desk = Desk(tmp_path).lay_out()
    options = desk.options("s", tmp_path / "runs", engine_command=command, gpus="1")
    done = run_tune(*options, "--dry-run", env=driver)
    assert done.returncode == 2
    assert "GPU '1' is divided by MIG; name one of its instances (usable here: 0, MIG-stand-in)" in done.stderr
