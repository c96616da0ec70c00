"""An inspection as one HTML page that needs nothing else: no script, no font, no request to anywhere.

Everything from the recording is escaped. The words are those of `inspection_text.py`.
"""

from importlib import resources

from jinja2 import Environment, StrictUndefined

from tuner.inspection_text import heading, rejected, rows
from workloads import Inspection


def page(found: Inspection) -> str:
    """The page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("tuner").joinpath("templates", "inspection.html").read_text(encoding="utf-8")
    parts = {"Whole": found.whole, **{f"Profile {name}": traffic for name, traffic in found.profiles.items()}}
    if len(found.profiles) == 1:
        parts = {"Whole": found.whole}
    return environment.from_string(template).render(
        found=found,
        heading=heading(found),
        parts=[(title, traffic, list(rows(traffic))) for title, traffic in parts.items()],
        rejected=list(rejected(found)),
    )
