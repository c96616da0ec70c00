"""The names that Python programs use: which they are, what they take, and what importing them costs."""

import inspect
import subprocess
import sys

import tuner

NAMES = ["Progress", "ProgressCallback", "Recommendation", "TuneConfig", "TunerError", "tune", "tune_async"]
MEASURE = """
import sys, time
began = time.perf_counter()
import tuner
print(time.perf_counter() - began, *(name for name in ("optuna", "mlflow", "pydantic", "numpy") if name in sys.modules))
"""


def test_the_public_names_are_these_and_each_can_be_had() -> None:
    assert sorted(tuner.__all__) == NAMES
    assert all(getattr(tuner, name) is not None for name in NAMES)


def test_both_forms_of_tune_take_the_same() -> None:
    signatures = [inspect.signature(form) for form in (tuner.tune, tuner.tune_async)]
    assert signatures[0] == signatures[1]
    assert list(signatures[0].parameters) == ["config", "resume", "progress"]


def test_importing_the_package_loads_nothing_heavy_and_takes_less_than_50_ms() -> None:
    def seconds() -> float:
        done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
        took, *loaded = done.stdout.split()
        assert loaded == []
        return float(took)

    assert min(seconds() for _ in range(3)) < 0.05


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(tuner, "nothing_of_this_name")
