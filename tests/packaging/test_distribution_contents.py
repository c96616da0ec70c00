"""What is in the wheel and in the source distribution."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.packaging.conftest import Built

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
INFO = f"dflash_tuner-{VERSION}.dist-info"
PACKAGES = ("runners", "search_spaces", "tuner", "workloads")

# The limit is for a loaded machine: pip and the first import of numpy take seconds of CPU.
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def in_wheel(built: "Built") -> set[str]:
    with zipfile.ZipFile(built.wheel) as archive:
        return set(archive.namelist())


def test_check_wheel_contents_has_nothing_to_say(built: "Built") -> None:
    checked = subprocess.run(
        [Path(sys.executable).with_name("check-wheel-contents"), "--config", ROOT / "pyproject.toml", built.wheel],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_wheel_has_our_four_packages_and_nothing_else_at_the_top(in_wheel: set[str]) -> None:
    top = {name.partition("/")[0] for name in in_wheel}
    assert {*PACKAGES, INFO} == top


def test_every_package_says_that_it_is_typed(in_wheel: set[str]) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= in_wheel


@pytest.mark.parametrize(
    "folder", ["search_spaces/presets", "search_spaces/releases", "runners/simulated/calibrations"]
)
def test_all_data_of_a_folder_is_in_the_wheel(folder: str, in_wheel: set[str]) -> None:
    tracked = {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("*.yaml")}
    assert tracked
    assert tracked == {name for name in in_wheel if name.startswith(f"{folder}/") and name.endswith(".yaml")}


def test_the_wheel_has_every_module_that_the_source_has(in_wheel: set[str]) -> None:
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert modules == {name for name in in_wheel if name.endswith(".py")}


def test_no_test_and_no_bytecode_is_in_the_wheel(in_wheel: set[str]) -> None:
    assert not [name for name in in_wheel if "test_" in name or "conftest" in name or "__pycache__" in name]


def test_the_licence_is_in_the_wheel(in_wheel: set[str]) -> None:
    assert f"{INFO}/licenses/LICENSE" in in_wheel


def test_the_source_distribution_has_what_its_tests_and_documents_need(built: "Built") -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "docs/metrics.md",
        "tests/packaging/conftest.py",
        *(f"{package}/__init__.py" for package in PACKAGES),
    }
    assert set() == wanted - names
