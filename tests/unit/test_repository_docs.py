"""The documents say what the code does: names, fields, links, versions and the generated page are compared with it."""

import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from runners import EngineMetrics
from search_spaces import known_releases, load_space, preset_names
from tuner import measure
from workloads import BlockMetrics, Distribution, ReplayMetrics, read_workload
from workloads.formats.native import NativeRecord, NativeRecorded, NativeShape

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")], key=str)
# `accepted_at_01` and on: one name a draft position.
POSITION = re.compile(r"accepted_at_\d\d")
# Values of fields that are no plain numbers.
SPECIAL: dict[str, object] = {"accepted_per_position": (1, 1), "blocks": (), "errors": {}}
MetricsT = TypeVar("MetricsT")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_column(text: str) -> set[str]:
    """Everything in code marks in the first column of the page's tables."""
    cells = re.findall(r"^\| *([^|]*)\|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def section(text: str, title: str) -> str:
    """From a heading to the next one of any level."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def full(kind: type[MetricsT]) -> MetricsT:
    """An instance of a metrics class in which everything has been measured."""
    distribution = Distribution(count=1, mean=1.0, p50=1.0, p90=1.0, p99=1.0, maximum=1.0)
    values: dict[str, object] = {}
    for name, hint in get_type_hints(kind).items():
        choices = get_args(hint) or (hint,)
        values[name] = distribution if Distribution in choices else 1
    return kind(**{**values, **{n: v for n, v in SPECIAL.items() if n in values}})


@pytest.fixture(scope="module")
def measured_names() -> set[str]:
    names = measure._metrics(full(ReplayMetrics), full(EngineMetrics), 1.0) | measure._kv_block({"block_size": "16"})
    return {POSITION.sub("accepted_at_NN", name) for name in names}


def test_metrics_page_has_every_metric_that_a_measurement_can_have(measured_names: set[str]) -> None:
    assert len(measured_names) > 40
    assert set() == measured_names - first_column(text_of("docs/metrics.md"))


def test_metrics_page_has_no_metric_that_does_not_exist(measured_names: set[str]) -> None:
    page = text_of("docs/metrics.md")
    sections = ("Throughput", "Latency", "Speculation and prefix cache", "Whether the load was what was asked for")
    described = first_column("".join(section(page, title).split("A measurement is invalid")[0] for title in sections))
    assert set() == described - measured_names


def test_metrics_page_has_every_metric_of_a_block() -> None:
    summary = dataclasses.replace(full(ReplayMetrics), blocks=(full(BlockMetrics),))
    (row,) = measure._block_values(summary)
    page = section(text_of("docs/metrics.md"), "Blocks")
    plain = {name for name in row.metrics if not re.match(r"(ttft|tpot|e2e)_", name)}
    assert plain
    assert set() == {name for name in plain if f"`{name}`" not in page}


def test_metrics_page_names_only_counters_that_are_read() -> None:
    read = text_of("runners/prometheus.py")
    assert set() == {name for name in re.findall(r"vllm:\w+", text_of("docs/metrics.md")) if name not in read}


@pytest.mark.parametrize("model", [NativeRecord, NativeRecorded, NativeShape])
def test_workload_page_has_every_field_of_the_native_format(model: type[BaseModel]) -> None:
    assert set() == set(model.model_fields) - first_column(text_of("docs/workload-format.md"))


@pytest.mark.parametrize(("title", "format_name"), [("Native", "native"), ("OpenAI batch", "openai_batch")])
def test_examples_of_the_workload_page_can_be_read(title: str, format_name: str, tmp_path: Path) -> None:
    (example,) = re.findall(r"```jsonl\n(.*?)```", section(text_of("docs/workload-format.md"), title), re.DOTALL)
    path = tmp_path / "example.jsonl"
    path.write_text(example, encoding="utf-8")
    workload = read_workload(path, max_bad_share=0)
    assert (format_name, len(example.splitlines())) == (workload.format, len(workload.requests))


def test_search_space_page_has_every_preset_and_every_knob() -> None:
    described = first_column(text_of("docs/search-spaces.md"))
    knobs = {knob for preset in preset_names() for knob in load_space(preset).knobs}
    assert set() == {*preset_names(), *knobs} - described


def test_example_space_is_a_search_space(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", text_of("docs/search-spaces.md"), re.DOTALL)
    path = tmp_path / "space.yaml"
    path.write_text(example, encoding="utf-8")
    space = load_space(str(path))
    assert "kv_block_size" not in space.knobs
    assert (space.knobs["num_speculative_tokens"].low, space.knobs["num_speculative_tokens"].high) == (3, 11)


def test_command_line_page_is_current() -> None:
    # In a process of its own: the usage lines depend on how the running program was started.
    script = [sys.executable, str(DOCS / "generate_cli.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]
    assert [path for path, _, _ in links if path and not (page.parent / path).exists()] == []
    inside = [fragment for path, _, fragment in links if not path]
    assert [fragment for fragment in inside if fragment not in anchors(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_do_not_name_directories_of_one_machine(page: Path) -> None:
    assert re.findall(r"(?:/home|/root|/work|/Users|/tmp)/\S+", page.read_text(encoding="utf-8")) == []


def test_decisions_are_numbered_without_gaps_and_all_listed() -> None:
    names = sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))
    assert [f"{number:04d}" for number in range(1, len(names) + 1)] == [name[:4] for name in names]
    index = text_of("docs/adr/README.md")
    assert [name for name in names if f"({name})" not in index] == []


def test_decisions_fit_on_a_screen_and_have_the_same_sections() -> None:
    for path in (DOCS / "adr").glob("[0-9]*.md"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences", "Alternatives"]
        assert len(text.splitlines()) <= 50, path.name


def test_changelog_has_the_version_of_the_project() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert f"## [{version}]" in text_of("CHANGELOG.md")


def test_contributing_names_only_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", text_of("CONTRIBUTING.md")))
    assert named
    assert set() == named - targets


def test_every_release_table_says_where_it_was_read() -> None:
    assert known_releases()
    for release in known_releases():
        assert "provenance:" in text_of(f"search_spaces/releases/{release}.yaml")


def anchors(text: str) -> set[str]:
    """Anchors that a renderer of GitHub's kind makes of the headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
