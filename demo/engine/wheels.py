"""The two distributions of our own in the engine's environment, written as wheels without any build tool.

A wheel is a zip archive with a list of its files and their hashes (the binary distribution format of the packaging
guide); for one module, or none, writing it here is shorter than a build backend, and works offline.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

ENGINE_VERSION = "0.32.0"
PLUGIN_VERSION = "1.0.0"
PLUGIN_MODULE = "vllm_cpu_sampling_repair"


def plugin_wheel(folder: Path) -> Path:
    """The repair of vllm#55005 as a vLLM plugin."""
    source = Path(__file__).resolve().parent / "plugin" / f"{PLUGIN_MODULE}.py"
    entry_points = f"[vllm.general_plugins]\ncpu_sampling_repair = {PLUGIN_MODULE}:register\n"
    return write_wheel(
        folder,
        name=PLUGIN_MODULE,
        version=PLUGIN_VERSION,
        summary="Repairs sampling under speculation in vLLM's CPU engine",
        modules={f"{PLUGIN_MODULE}.py": source.read_text(encoding="utf-8")},
        entry_points=entry_points,
    )


def vllm_metadata_wheel(folder: Path) -> Path:
    """Metadata alone: the ``vllm`` command asks for the version of a distribution named vllm."""
    return write_wheel(
        folder,
        name="vllm",
        version=f"{ENGINE_VERSION}+cpu",
        summary="Names vllm-cpu as vllm",
        modules={},
        entry_points=None,
    )


def write_wheel(
    folder: Path, *, name: str, version: str, summary: str, modules: dict[str, str], entry_points: str | None
) -> Path:
    """Write a pure-Python wheel.

    Returns:
        Its path.
    """
    info = f"{name}-{version}.dist-info"
    files = dict(modules)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: dflash-tuner\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if entry_points is not None:
        files[f"{info}/entry_points.txt"] = entry_points
    record = f"{info}/RECORD"
    lines = [f"{path},{hash_of(text)},{len(text.encode())}" for path, text in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in files.items():
            archive.writestr(member, text)
    return path


def hash_of(text: str) -> str:
    """As RECORD wants it: URL-safe base64 without padding."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
