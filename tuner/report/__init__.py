"""The report of a study: one HTML file that needs no network, and an image of each plot for MLflow."""

from tuner.report.write import write_report

__all__ = ["write_report"]
