"""A report as one HTML file: no request to anywhere, and nothing from the study can become markup or script.

Texts go through the template's escaping; the plots' data goes into a JSON block in which no `<` is left. The page's
policy lets only the two texts of this package run, named by their hashes.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from tuner.report.cards import cards
from tuner.report.material import Material
from tuner.report.plots import Plot, Section
from tuner.report.quantities import gain, interval, number, quantity
from tuner.report.words import advice, headline, origin

SCRIPTS = ("scales.js", "marks.js", "kinds.js", "hover.js", "page.js")


def page(material: Material, found: Sequence[Section]) -> str:
    """The file's text."""
    style, script = _asset("report.css"), "\n".join(_asset(name) for name in SCRIPTS)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"cell": _cell, "gain": gain}
    return environment.from_string(_asset("report.html")).render(
        policy=f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'",
        style=Markup(style),  # noqa: S704 - this package's own file
        script=Markup(script),  # noqa: S704 - as above
        data=Markup(_data(found)),  # noqa: S704 - no `<`, `>` or `&` is left in it
        study=material.config.study,
        headline=headline(material),
        cards=cards(material),
        explanation=material.explanation,
        advice=advice(material),
        sections=found,
        origin=origin(material),
        failures=[r for r in material.records if r.failure is not None],
        objective=quantity(material.objective.metric).label,
        interval=interval,
    )


def _data(found: Sequence[Section]) -> str:
    """All plots by their id, as JSON that may stand inside a script element."""
    plots = {plot.id: _drawn(plot) for section in found for plot in section.plots}
    text = json.dumps(plots, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _drawn(plot: Plot) -> dict[str, Any]:
    """What the script needs: all but the table. Points are lists, because there are many."""
    document = plot.model_dump(mode="json", exclude={"rows", "columns", "id"}, exclude_defaults=True)
    for series, drawn in zip(plot.series, document["series"], strict=True):
        drawn["points"] = [
            [_short(p.x), _short(p.y), _short(p.low), _short(p.high), p.note, _short(p.value)] for p in series.points
        ]
    return document


def _short(value: float | None) -> float | None:
    """Six significant digits are more than a screen shows."""
    return None if value is None else float(f"{value:.6g}")


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return number(value) if isinstance(value, float) else value


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return resources.files("tuner.report").joinpath("assets", name).read_text(encoding="utf-8")
