"""A study on a host with GPUs: `tune` and its engines are processes, NVIDIA's library is a stand-in with its layout.

The engine is the simulated one behind a script of another name, because what is openly simulated uses no GPU.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.study_desk import Desk, run_tune
from tuner.store import Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """\
{{ echo "$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"; grep Cpus_allowed_list /proc/self/status; }} > {seen}
exec {python} -P -m runners.simulated serve "$@"
"""
IDLE = {"STAND_IN_USED_MIB": "512", "STAND_IN_UTILIZATION": "0", "STAND_IN_REASONS": "0"}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a host with the stand-in's GPUs, all idle."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here to make the stand-in with")
    directory = tmp_path_factory.mktemp("driver")
    source = ROOT / "tests" / "data" / "nvml" / "nvml_stand_in.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", directory / "libnvidia-ml.so.1", source], check=True)
    return {"LD_LIBRARY_PATH": str(directory), **IDLE}


@pytest.fixture
def command(tmp_path: Path) -> str:
    script = tmp_path / "engine.sh"
    text = SCRIPT.format(seen=shlex.quote(str(tmp_path / "seen")), python=shlex.quote(sys.executable))
    script.write_text(text, encoding="utf-8")
    return f"sh {shlex.quote(str(script))}"


def test_engines_get_their_gpus_and_measurements_say_what_these_did(
    tmp_path: Path, driver: dict[str, str], command: str
) -> None:
    desk = Desk(tmp_path).lay_out()
    options = desk.options(
        "s",
        tmp_path / "runs",
        engine_command=command,
        gpus="0",
        draft=None,
        profile_by="none",
        trials="2",
        requests="4",
        engine_version="0.33.0",
    )
    done = run_tune(*options, env=driver)
    assert done.returncode == 0, done.stdout + done.stderr
    order, cores = (tmp_path / "seen").read_text().splitlines()
    assert order == "PCI_BUS_ID 0"
    assert cores.split() == ["Cpus_allowed_list:", "0"]  # of the stand-in's near cores, 0 and 2, those that are here
    store = Store.open(tmp_path / "runs", "s")
    measurements = [m for record in store.records() for m in record.measurements.values()]
    assert all(not any("GPU" in problem for problem in m.problems) for m in measurements)
    for measurement in measurements:
        assert measurement.metrics["gpu_power_mean_w"] == pytest.approx(350.5)
        assert measurement.metrics["gpu_memory_used_max_bytes"] == 512 << 20
        assert measurement.metrics["gpu_energy_j"] > 0
        assert measurement.metrics["gpu_telemetry_cpu_share"] < 0.01
    provenance = store.provenance()
    assert provenance is not None
    assert provenance.gpus == ("Stand-In GPU, 81920",)
    assert "the engine says that it is vLLM 0.32.0+simulated, but the plan was made for 0.33.0" in done.stdout


def test_a_measurement_on_a_gpu_that_throttled_is_invalid_and_says_why(
    tmp_path: Path, driver: dict[str, str], command: str
) -> None:
    desk = Desk(tmp_path).lay_out()
    options = desk.options(
        "s",
        tmp_path / "runs",
        engine_command=command,
        gpus="0",
        draft=None,
        profile_by="none",
        trials="2",
        requests="4",
    )
    done = run_tune(*options, env={**driver, "STAND_IN_REASONS": "0x44"})
    assert (
        "INVALID: GPU 0 throttled in 100% of the readings (hardware thermal, up to 61 degrees Celsius)" in done.stdout
    )
    assert done.returncode == 1


def test_no_engine_is_started_on_a_busy_gpu(tmp_path: Path, driver: dict[str, str], command: str) -> None:
    desk = Desk(tmp_path).lay_out()
    options = desk.options("s", tmp_path / "runs", engine_command=command, gpus="0")
    done = run_tune(*options, env={**driver, "STAND_IN_USED_MIB": "30720"})
    assert done.returncode == 3
    assert "GPU 0 is busy: 30.0 GiB are in use" in done.stderr
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    ("gpus", "with_driver", "complaint"),
    [
        ("5", True, "GPU '5' does not exist (usable here: 0, MIG-stand-in)"),
        ("1", True, "GPU '1' is divided by MIG; name one of its instances"),
        ("0", False, "--gpus 0: no NVIDIA driver on this host"),
    ],
)
def test_gpus_that_cannot_be_used_are_told_before_anything_starts(
    tmp_path: Path, driver: dict[str, str], command: str, *, gpus: str, with_driver: bool, complaint: str
) -> None:
    if not with_driver and Path("/dev/nvidiactl").exists():
        pytest.skip("this host has a driver")
    desk = Desk(tmp_path).lay_out()
    options = desk.options("s", tmp_path / "runs", engine_command=command, gpus=gpus)
    done = run_tune(*options, "--dry-run", env=driver if with_driver else {})
    assert done.returncode == 2
    assert complaint in done.stderr
