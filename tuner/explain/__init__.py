"""Why a study came out as it did: a pure function of the study's files, see `records.Explanation`."""

from tuner.explain.explain import explain, explain_study
from tuner.explain.records import Explanation

__all__ = ["Explanation", "explain", "explain_study"]
