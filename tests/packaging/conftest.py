"""The distribution as a user gets it: built once, installed into clean environments with the source out of reach.

Nothing is downloaded: an environment gets our wheel by pip and the dependencies as links to those of the environment
that runs the tests, without our own editable installation.
"""

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("dflash_tuner", "_editable_impl_dflash_tuner")


@dataclass(frozen=True, slots=True)
class Built:
    """What `python -m build` made."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment with the wheel in it."""

    directory: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    def run(self, *argv: str, cwd: Path = Path("/")) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment; nothing of the caller's environment variables reaches it."""
        program, *arguments = argv
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.directory), "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            [str(self.directory / "bin" / program), *arguments],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def install(self, wheel: Path) -> None:
        """Installs a wheel as a user would, without its dependencies and without an index."""
        options = ["--no-deps", "--no-index", "--no-compile", "--force-reinstall", "--quiet"]
        self._pip("install", *options, str(wheel))

    def uninstall(self, name: str) -> None:
        """Removes a distribution."""
        self._pip("uninstall", "--yes", "--quiet", name)

    def _pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python), *arguments]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        cwd=out,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to everything that is installed beside us, but not to us."""
    directory = tmp_path_factory.mktemp("dependencies")
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith(OURS) and installed.suffix != ".pth":
            (directory / installed.name).symlink_to(installed)
    return directory


def make_installation(directory: Path, built: Built, dependencies: Path) -> Installation:
    """A new environment with the wheel and the dependencies."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=60)
    (site_packages,) = directory.glob("lib/python3.*/site-packages")
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    installation = Installation(directory)
    installation.install(built.wheel)
    return installation


@pytest.fixture(scope="session")
def installation(built: Built, dependencies: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment that tests only look at."""
    return make_installation(tmp_path_factory.mktemp("installation") / "venv", built, dependencies)


@pytest.fixture(scope="module")
def own_installation(built: Built, dependencies: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment that the tests of a module may damage, if they repair it."""
    return make_installation(tmp_path_factory.mktemp("own") / "venv", built, dependencies)
