"""The report in a real browser: it can be read, questioned and trusted, whatever the traffic was called."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import CHROMIUM, INSTALL, PLANTED, Opener
from tests.integration.study_desk import FinishedStudy
from tuner.store import Store

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=INSTALL),
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


def test_a_study_of_200_trials_takes_the_browser_less_than_two_seconds_and_weighs_less_than_five_megabytes(
    large: Store, open_page: Opener
) -> None:
    """Seconds of the page's main thread, which do all of the work: what else the host does is not the page's."""
    assert large.report.stat().st_size < 5_000_000
    page = open_page("about:blank").page
    meter = page.context.new_cdp_session(page)
    meter.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(large.report.as_uri())
    expect(page.locator("#trials svg .spot").first).to_be_visible()
    figures = {metric["name"]: metric["value"] for metric in meter.send("Performance.getMetrics")["metrics"]}
    assert 0 < figures["ScriptDuration"] < figures["TaskDuration"] < 2


def test_it_asks_for_nothing_but_itself_and_complains_of_nothing(large: Store, open_page: Opener) -> None:
    opened = open_page(large.report)
    for section in opened.page.locator(".question").all():
        select = section.locator("select")
        for value in (
            [option.get_attribute("value") for option in select.locator("option").all()] if select.count() else []
        ):
            select.select_option(value)
        assert section.locator(".pane.chosen svg").first.bounding_box() is not None
    assert opened.requests == [large.report.as_uri()]
    assert opened.complaints == []


@pytest.mark.parametrize("source", ["names", "traffic"])
def test_nothing_from_the_study_becomes_script(
    request: pytest.FixtureRequest, large: Store, open_page: Opener, source: str
) -> None:
    if source == "traffic":
        study: FinishedStudy = request.getfixturevalue("planted")
        assert (study.returncode, study.stderr) == (0, "")
        report = study.store().report
        text = report.read_text(encoding="utf-8")
        assert "window.planted=1" not in text, "a prompt or a raw route is in the report"
    else:
        report = large.report
    page = open_page(report).page
    if source == "names":
        expect(page.get_by_role("heading", name=PLANTED, exact=True).first).to_be_visible()
    assert page.evaluate("window.planted") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2, "the data and the package's own script"
    _run_inline_script(page)
    assert page.evaluate("window.planted") is None, "the policy lets other scripts run"


def _run_inline_script(page: Page) -> None:
    """What an escaping mistake would do."""
    page.evaluate(
        """() => { const script = document.createElement('script'); script.textContent = 'window.planted = 1';
        document.body.append(script); }"""
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(large: Store, open_page: Opener, scheme: str) -> None:
    page = open_page(large.report, width=390, scheme=scheme).page
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    texts = page.locator(".pane.chosen .canvas svg text").all()
    boxes = [box for text in texts if (box := text.bounding_box()) is not None]
    assert len(boxes) > 50
    assert max(box["x"] + box["width"] for box in boxes) <= 391


def test_a_pointer_finds_the_point_under_it(large: Store, open_page: Opener) -> None:
    page = open_page(large.report).page
    svg = page.locator("#load .pane.chosen .canvas svg")
    svg.scroll_into_view_if_needed()
    box = page.locator("#load .pane.chosen g.rec .spot").last.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#load .pane.chosen .tip")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("requests in flight: 8")
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()


def test_a_series_is_toggled_by_its_button_with_the_keyboard(large: Store, open_page: Opener) -> None:
    page = open_page(large.report).page
    pane = page.locator("#load .pane.chosen")
    button = pane.get_by_role("button", name="recommendation")
    assert pane.locator("g.rec").count() == 1
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert pane.locator("g.rec").count() == 0
    page.keyboard.press("Enter")
    assert pane.locator("g.rec").count() == 1


def test_arrow_keys_read_the_points_aloud_and_escape_ends_it(large: Store, open_page: Opener) -> None:
    page = open_page(large.report).page
    pane = page.locator("#load .pane.chosen")
    pane.locator("svg[tabindex]").focus()
    heard = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
        heard.append(pane.get_by_role("status").inner_text())
    assert "baseline" in heard[0]
    assert ("flight: 1" in heard[0], "flight: 2" in heard[1]) == (True, True)
    assert "recommendation" in heard[2]
    page.keyboard.press("Escape")
    expect(pane.locator(".tip")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_lines_stand_out_from_the_background(large: Store, open_page: Opener, scheme: str) -> None:
    """WCAG 2.2: 4.5 to 1 for text, 3 to 1 for what a plot is made of."""
    page = open_page(large.report, scheme=scheme).page
    colours = page.evaluate(
        """() => { const style = getComputedStyle(document.documentElement); const names =
        ['ink','soft','warn','rec','good','base','c0','c1','c2','c3','c4','c5','back','card'];
        return Object.fromEntries(names.map(n => [n, style.getPropertyValue('--' + n).trim()])); }"""
    )
    for name in ("ink", "soft", "warn", "rec", "good"):
        for behind in ("back", "card"):
            assert _contrast(colours[name], colours[behind]) >= 4.5, (name, behind)
    for name in ("base", "c0", "c1", "c2", "c3", "c4", "c5"):
        assert _contrast(colours[name], colours["back"]) >= 3, name


def test_each_plot_has_its_figures_in_a_table_and_without_scripts_too(large: Store, open_page: Opener) -> None:
    page = open_page(large.report).page
    panes = page.locator(".pane").count()
    assert panes > 60
    assert page.locator(".pane table:has(caption):has(th[scope=col]) tbody:has(td)").count() == panes


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
