"""The wheel in a clean environment, with the source out of reach."""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.packaging.conftest import Installation

PACKAGES = ("runners", "search_spaces", "tuner", "workloads")
SCRIPTS = ("tune", "dflash-tune")
ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

# The limit is for a loaded machine: pip and the first import of numpy take seconds of CPU.
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "traffic.jsonl"
    record = {"route": "code", "body": {"prompt": "def f(", "max_tokens": 8, "temperature": 0}}
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A working directory with packages of the same names, as in somebody else's project."""
    folder = tmp_path / "project"
    for package in PACKAGES:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise SystemExit('the wrong package')\n", encoding="utf-8")
    return folder


def test_the_packages_come_from_the_wheel(installation: "Installation") -> None:
    code = f"import {', '.join(PACKAGES)}; print(*(m.__file__ for m in ({', '.join(PACKAGES)},)), sep='\\n')"
    done = installation.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    (site_packages,) = installation.directory.glob("lib/python3.*/site-packages")
    assert [str(site_packages / package / "__init__.py") for package in PACKAGES] == done.stdout.split()


@pytest.mark.parametrize("script", SCRIPTS)
def test_version_is_that_of_the_distribution(script: str, installation: "Installation") -> None:
    done = installation.run(script, "--version")
    assert (done.returncode, done.stdout.strip()) == (0, VERSION), done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_works_from_the_root_directory(script: str, installation: "Installation") -> None:
    done = installation.run(script, "--help")
    assert done.returncode == 0, done.stderr
    assert "--workload" in done.stdout


def test_inspect_works_from_the_root_directory(installation: "Installation", workload: Path) -> None:
    done = installation.run("tune", "inspect", str(workload), "--json")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["profiles"]) == ["code"]


def test_folders_of_the_same_names_in_the_working_directory_do_not_matter(
    installation: "Installation", workload: Path, hostile_folder: Path
) -> None:
    for arguments in (["--version"], ["--help"], ["inspect", str(workload)]):
        done = installation.run("tune", *arguments, cwd=hostile_folder)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_module_form_is_safe_with_its_flag(
    installation: "Installation", workload: Path, hostile_folder: Path
) -> None:
    done = installation.run("python", "-P", "-m", "tuner", "inspect", str(workload), cwd=hostile_folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_presets_and_release_tables_can_be_read(installation: "Installation") -> None:
    code = (
        "from search_spaces import known_releases, load_release, load_space, preset_names;"
        "print(len([load_space(n) for n in preset_names()]), len([load_release(v) for v in known_releases()]))"
    )
    done = installation.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    presets, releases = map(int, done.stdout.split())
    assert presets >= 2
    assert releases >= 6


def test_a_python_caller_gets_the_names_that_the_package_promises(installation: "Installation") -> None:
    code = "import tuner; print(*(name for name in tuner.__all__ if getattr(tuner, name) is not None))"
    done = installation.run("python", "-c", code)
    names = "Progress ProgressCallback Recommendation TuneConfig TunerError tune tune_async"
    assert (done.returncode, done.stdout.strip()) == (0, names), done.stderr
