"""MLflow: the only package that knows it."""

from tuner.tracking._names import key_of
from tuner.tracking._registry import fetch_recommendations
from tuner.tracking._tracker import MlflowTracker

__all__ = ["MlflowTracker", "fetch_recommendations", "key_of"]
