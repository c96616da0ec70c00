"""MLflow: the only package that knows it."""

from tuner.tracking._names import default_tracking_uri, key_of
from tuner.tracking._registry import fetch_recommendations
from tuner.tracking._tracker import MlflowTracker

__all__ = ["MlflowTracker", "default_tracking_uri", "fetch_recommendations", "key_of"]
