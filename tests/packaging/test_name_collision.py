"""Another distribution with a top-level package of one of our names: found out, and said in one line."""

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.packaging.conftest import Built, Installation

# The limit is for a loaded machine: pip and the first import of numpy take seconds of CPU.
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]


def write_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    """A minimal wheel (binary distribution format 1.0), so that no build tool is needed."""
    info = f"{name}-1.0.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in members.items()]
    members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in members.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize("package", ["runners", "tuner"])
def test_an_intruder_is_named_then_the_damage_that_it_leaves_and_the_stated_remedy_works(
    package: str, own_installation: "Installation", built: "Built", tmp_path: Path
) -> None:
    own_installation.install(write_wheel(tmp_path, "intruder", {f"{package}/__init__.py": "MINE = True\n"}))
    found = own_installation.run("tune", "--help")
    assert (found.returncode, found.stdout) == (2, "")
    assert len(found.stderr.splitlines()) == 1
    assert found.stderr.startswith(f"tune: intruder also installs a top-level package '{package}'")

    own_installation.uninstall("intruder")
    damaged = own_installation.run("tune", "--help")
    assert (damaged.returncode, damaged.stdout) == (2, "")
    assert len(damaged.stderr.splitlines()) == 1
    assert damaged.stderr.startswith(f"tune: the package '{package}' is damaged")
    assert damaged.stderr.endswith("run `pip install --force-reinstall --no-deps dflash-tuner`\n")

    own_installation.install(built.wheel)
    assert own_installation.run("tune", "--version").returncode == 0


def test_an_unrelated_distribution_is_left_alone(own_installation: "Installation", tmp_path: Path) -> None:
    own_installation.install(write_wheel(tmp_path, "neighbour", {"neighbour/__init__.py": ""}))
    done = own_installation.run("tune", "--version")
    assert (done.returncode, done.stderr) == (0, "")
