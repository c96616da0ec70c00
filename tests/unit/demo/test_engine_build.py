"""Building the engine's environment: real pip against package indexes that are served here."""

import importlib.util
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

ENGINE = Path(__file__).resolve().parents[3] / "demo" / "engine"

pytestmark = pytest.mark.slow


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build script, loaded as its own folder's scripts load each other."""
    monkeypatch.syspath_prepend(str(ENGINE))
    spec = importlib.util.spec_from_file_location("engine_build", ENGINE / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's own name
        """Keeps the test's output clean."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Two indexes below one server: `general` has the package `plain`, `pytorch` has `torch` with a local version."""
    _publish(tmp_path / "web" / "general", "plain", "1.0")
    _publish(tmp_path / "web" / "pytorch", "torch", "2.0+cpu")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(tmp_path / "web")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def _publish(index: Path, name: str, version: str) -> None:
    """A wheel of one module, in the layout of the simple repository API."""
    folder = index / name
    folder.mkdir(parents=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    directory = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    return directory


def test_pytorchs_own_index_is_asked_when_the_general_one_lacks_its_cpu_build(
    build: ModuleType, served: str, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("plain==1.0\ntorch==2.0+cpu\n", encoding="ascii")
    monkeypatch.setattr(build, "REQUIREMENTS", requirements)
    monkeypatch.setattr(build, "TORCH_CPU_INDEX", f"{served}/pytorch")
    _only_index(f"{served}/general", monkeypatch)
    build.install_requirements(environment / "bin" / "python", environment)
    assert {"plain": "1.0", "torch": "2.0+cpu"}.items() <= build.installed(environment).items()


def test_another_package_that_no_index_has_is_named_with_the_remedy(
    build: ModuleType, served: str, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("absent==3.1\n", encoding="ascii")
    monkeypatch.setattr(build, "REQUIREMENTS", requirements)
    _only_index(f"{served}/general", monkeypatch)
    with pytest.raises(build.BuildError, match=r"has no absent==3.1 for Python .*PIP_INDEX_URL"):
        build.install_requirements(environment / "bin" / "python", environment)


def test_an_index_that_cannot_be_reached_is_said_to_be_needed_once(
    build: ModuleType, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("plain==1.0\n", encoding="ascii")
    monkeypatch.setattr(build, "REQUIREMENTS", requirements)
    _only_index("http://127.0.0.1:9/simple", monkeypatch)
    monkeypatch.setenv("PIP_RETRIES", "1")  # without a retry pip does not say that the connection failed
    with pytest.raises(build.BuildError, match="package index cannot be reached"):
        build.install_requirements(environment / "bin" / "python", environment)


def _only_index(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
