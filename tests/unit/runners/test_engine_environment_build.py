"""demo/engine/build.py: what it says when it cannot build, and that the wheels that it writes are wheels."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "demo" / "engine"


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_wheels", FOLDER / "wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(directory: Path, *arguments: str, **env: str) -> tuple[int, str]:
    """Exit code and what it said on stderr."""
    result = subprocess.run(
        [sys.executable, str(FOLDER / "build.py"), "--dir", str(directory), *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    return result.returncode, result.stderr


@pytest.mark.parametrize("maker", ["plugin_wheel", "vllm_metadata_wheel"])
def test_every_file_of_a_wheel_is_in_its_record_with_its_hash(wheels: ModuleType, tmp_path: Path, maker: str) -> None:
    path = getattr(wheels, maker)(tmp_path)
    with zipfile.ZipFile(path) as archive:
        record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        entries = [line.split(",") for line in archive.read(record).decode().splitlines()]
        listed = {name: digest for name, digest, _ in entries}
        assert listed.pop(record) == ""
        assert {name: hash_of(archive.read(name)) for name in archive.namelist() if name != record} == listed


def hash_of(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def test_the_plugin_is_found_by_its_entry_point(wheels: ModuleType, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels.plugin_wheel(tmp_path)) as archive:
        archive.extractall(tmp_path / "site")
    (found,) = metadata.distributions(path=[str(tmp_path / "site")])
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == ("vllm.general_plugins", "vllm_cpu_sampling_repair:register")


def test_the_name_vllm_gets_the_version_of_the_pinned_engine(wheels: ModuleType, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels.vllm_metadata_wheel(tmp_path)) as archive:
        archive.extractall(tmp_path / "site")
    (found,) = metadata.distributions(path=[str(tmp_path / "site")])
    pinned = (FOLDER / "requirements.txt").read_text(encoding="ascii").splitlines()
    assert found.metadata["Name"] == "vllm"
    assert f"vllm-cpu=={found.version.removesuffix('+cpu')}" in pinned


def test_no_requirement_is_one_that_breaks_the_engine() -> None:
    names = [line.partition("==")[0] for line in (FOLDER / "requirements.txt").read_text(encoding="ascii").splitlines()]
    assert sorted({"torchvision", "torchaudio", "torchcodec", "triton"} & set(names)) == []


def test_a_check_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    code, said = build(tmp_path / "none", "--check")
    assert code == 1
    assert "missing, unfinished or out of date; run this without --check" in said
    assert not (tmp_path / "none").exists()


def test_a_directory_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    code, said = build(tmp_path)
    assert code == 1
    assert "is not a virtual environment" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_build_is_started_over_and_without_a_network_it_says_so(tmp_path: Path) -> None:
    for name in ("pyvenv.cfg", "engine-unfinished", "half-installed"):
        (tmp_path / name).touch()
    code, said = build(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="1", PIP_TIMEOUT="1")
    assert code == 1
    assert "the package index cannot be reached" in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "half-installed").exists()
    assert (tmp_path / "engine-unfinished").exists()
