"""Decides: the command line, the story of a study, the search, the statistics, the recommendation and its exports.

What a Python program uses is in `__all__` and stays; the modules below are free to change.
"""

# Not imported from `typing`, which takes longer than all else here; type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from tuner.api import Progress, ProgressCallback, tune, tune_async
    from tuner.config import TuneConfig
    from tuner.errors import TunerError
    from tuner.records import Recommendation

_MODULE_OF = {
    "Progress": "tuner.api",
    "ProgressCallback": "tuner.api",
    "Recommendation": "tuner.records",
    "TuneConfig": "tuner.config",
    "TunerError": "tuner.errors",
    "tune": "tuner.api",
    "tune_async": "tuner.api",
}

__all__ = ["Progress", "ProgressCallback", "Recommendation", "TuneConfig", "TunerError", "tune", "tune_async"]


def __getattr__(name: str) -> object:
    """Resolved on first use, so that `tune --help` does not wait for Optuna."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    found: object = value
    return found
