"""The questions of a report in the order in which a reader asks them."""

from tuner.report.acceptance_plots import acceptance
from tuner.report.answer_plots import gains
from tuner.report.interaction_plots import interactions
from tuner.report.knob_plots import effects, importance
from tuner.report.load_plots import load_curves
from tuner.report.material import Material
from tuner.report.plots import Plot, Section
from tuner.report.request_plots import latencies, timelines
from tuner.report.search_plots import pareto, trials_over_time

QUESTIONS = (
    gains,
    load_curves,
    interactions,
    acceptance,
    pareto,
    latencies,
    timelines,
    importance,
    effects,
    trials_over_time,
)


def sections(material: Material) -> list[Section]:
    """Those that the study can answer."""
    return [section for question in QUESTIONS if (section := question(material)) is not None]


def first_plots(found: list[Section]) -> list[Plot]:
    """One plot of each section: what is kept as an image."""
    return [section.plots[0] for section in found]
