"""What the report draws and writes, without a browser: figures are those of the files, and no text can break out."""

import html
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.browser.made_study import make_study
from tuner.errors import StudyError
from tuner.report import write_report
from tuner.report.images import draw
from tuner.report.material import Material
from tuner.report.page import _data, page
from tuner.report.plots import Axis, Plot, Point, Section, Series
from tuner.report.quantities import number
from tuner.report.request_plots import _lanes, _quantile
from tuner.report.search_plots import LATENCY, THROUGHPUT, pareto_front
from tuner.report.sections import sections
from tuner.store import Store

HOSTILE = "</script><script>alert(1)</script> ]]> <!-- \u2028 {{ study }} & \" ' $x_$ \\"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    store = make_study(tmp_path_factory.mktemp("report"), profiles=(HOSTILE,), trials=9, loads=(1, 8), failure=HOSTILE)
    return Material.of(store)


def data_of(text: str) -> dict[str, dict[str, object]]:
    (block,) = re.findall(r'<script type="application/json" id="plots">(.*?)</script>', text, re.DOTALL)
    document: dict[str, dict[str, object]] = json.loads(block)
    return document


def test_whatever_a_profile_is_called_the_page_has_its_own_two_scripts_and_its_data_is_whole(
    material: Material,
) -> None:
    found = sections(material)
    text = page(material, found)
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!--" not in text
    plots = {plot.id: plot for section in found for plot in section.plots}
    assert {name: plot["name"] for name, plot in data_of(text).items()} == {n: p.name for n, p in plots.items()}
    assert any(HOSTILE in plot.name for plot in plots.values())


@given(st.text(min_size=1))
def test_any_text_comes_out_of_the_data_block_as_it_went_in(text: str) -> None:
    axis = Axis(label=text)
    series = Series(name=text, points=(Point(x=0, y=1, note=text),))
    plot = Plot(id="a", name=text, kind="xy", x=axis, y=axis, series=(series,), takeaway=text, columns=(), rows=())
    block = _data([Section(id="s", title=text, reading=text, plots=(plot,))])
    assert not set(block) & set("<>&\u2028\u2029")
    drawn = json.loads(block)["a"]
    assert (drawn["name"], drawn["takeaway"], drawn["series"][0]["points"][0][4]) == (text, text, text)


def test_every_question_of_a_full_study_is_answered_with_a_plot_and_its_table(material: Material) -> None:
    found = sections(material)
    assert [s.id for s in found] == [
        "gain", "load", "interaction", "acceptance", "pareto", "latency", "timeline", "importance", "effects", "trials",
    ]  # fmt: skip
    for section in found:
        for plot in section.plots:
            assert plot.takeaway
            assert plot.rows
            assert {len(row) for row in plot.rows} == {len(plot.columns)}
            assert any(series.points for series in plot.series)
    ids = [plot.id for section in found for plot in section.plots]
    assert len(set(ids)) == len(ids)


def test_the_page_needs_no_other_file_or_host(material: Material) -> None:
    text = page(material, sections(material))
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", text)
    assert not re.findall(r"@import|url\(", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert html.unescape(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_an_unfinished_study_has_a_report_that_says_so_and_an_empty_one_has_none(
    material: Material, tmp_path: Path
) -> None:
    store = Store.create(material.config.model_copy(update={"out": tmp_path}))
    with pytest.raises(StudyError, match="no finished trial"):
        write_report(store)
    for record in material.records[:3]:
        store.write_record(record)
    assert "Not finished: 3 trials so far" in write_report(store).read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_kind_of_plot_becomes_an_image(material: Material, tmp_path: Path) -> None:
    kinds = {}
    for section in sections(material):
        plot = section.plots[0]
        kinds[plot.kind] = draw(plot, tmp_path).read_bytes()
    assert set(kinds) == {"xy", "bars", "heat", "timeline"}
    assert all(image.startswith(b"\x89PNG") and len(image) > 5000 for image in kinds.values())


def test_the_front_holds_exactly_what_nothing_else_beats_in_both(material: Material) -> None:
    rows = material.searched(material.conditions[0])
    figures = {r.plan.number: (m.metrics[LATENCY], m.metrics[THROUGHPUT]) for r, m in rows}
    beaten = {
        one
        for one, (wait, rate) in figures.items()
        for w, r in figures.values()
        if w <= wait and r >= rate and (w, r) != (wait, rate)
    }
    assert {r.plan.number for r, _ in pareto_front(rows)} == set(figures) - beaten


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), min_size=1, max_size=60))
def test_bars_of_one_lane_never_overlap_and_no_lane_is_wasted(spans: list[tuple[float, float]]) -> None:
    rows = [(start, None, None, start + length, 0, None, None, None) for start, length in sorted(spans)]
    lanes = _lanes(rows)
    for lane in set(lanes):
        own = [row for row, chosen in zip(rows, lanes, strict=True) if chosen == lane]
        assert all(before[3] <= after[0] for before, after in pairwise(own))
    busiest = max(sum(other[0] <= row[0] < other[3] or other is row for other in rows) for row in rows)
    assert max(lanes) + 1 <= busiest


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50), st.integers(0, 100))
def test_quantiles_are_numpy_s(values: list[float], percent: int) -> None:
    ordered = sorted(values)
    assert _quantile(ordered, percent) == pytest.approx(float(np.quantile(ordered, percent / 100)), abs=1e-6)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.001234, "0.00123"), (1.0, "1.00"), (99.96, "100.0"), (1234.5, "1 234"), (float("nan"), "-")],
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text
