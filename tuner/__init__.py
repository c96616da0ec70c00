"""Decides: the command line, the story of a study, the search, the statistics, the recommendation and its exports."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.config import TuneConfig
    from tuner.records import Recommendation
    from tuner.session import tune

_MODULE_OF = {"Recommendation": "tuner.records", "TuneConfig": "tuner.config", "tune": "tuner.session"}

__all__ = ["Recommendation", "TuneConfig", "tune"]


def __getattr__(name: str) -> Any:
    """Resolved on first use, so that `tune --help` does not wait for Optuna."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
