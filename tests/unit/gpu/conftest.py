"""Recorded GPUs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runners.gpu import RecordedNvml

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "nvml"


@pytest.fixture
def recorded() -> Callable[[str], RecordedNvml]:
    return lambda name: RecordedNvml.read(RECORDINGS / f"{name}.json")
