"""Names in Optuna's studies that are no knobs."""

TEMPERATURE = "temperature"
"""Parameter: the searched temperature."""
LAUNCH = "launch"
"""Constraint that a failed launch violates."""
