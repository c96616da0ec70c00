"""A stand-in of NVIDIA's driver library, compiled from C: the real nvidia-ml-py loads it as it would the driver's."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "data" / "nvml" / "nvml_stand_in.c"


def build_stand_in(directory: Path) -> dict[str, str]:
    """Makes the library in the directory and returns the environment of a process that shall find it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        # The binding loads a shared library and nothing else; recordings test what is above it without a compiler.
        pytest.skip("the stand-in of the GPU driver needs a C compiler (apt install gcc)")
    library = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
    return {"LD_LIBRARY_PATH": str(directory)}
