"""Making a release table from source that is read, never imported."""

import ast
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from search_spaces import known_releases
from search_spaces.releases.extract import extract, to_yaml
from search_spaces.releases.flags import functions
from search_spaces.releases.source import SourceTree, UnresolvedError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def source(tmp_path: Path) -> SourceTree:
    """A package whose import would fail: only reading it works."""
    package = tmp_path / "vllm"
    (package / "config").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    (package / "config" / "__init__.py").write_text("from vllm.config.cache import CacheConfig as Cache\n")
    (package / "config" / "cache.py").write_text(
        "from .kinds import Dtype, Backend, LIMIT\n"
        "class Base:\n    shared: bool = False\n"
        "class CacheConfig(Base):\n"
        "    dtype: Dtype | None = 'auto'\n"
        "    backend: 'Backend' = Backend.FAST\n"
        "    size: int = Field(default=2 * LIMIT, gt=0)\n"
        "    later: dict[str, int] = field(default_factory=dict)\n"
    )
    (package / "config" / "kinds.py").write_text(
        "from enum import Enum\nfrom typing import Literal\n"
        "Small = Literal['fp8']\nDtype = Literal['auto', Small]\nLIMIT = 1 << 3\n"
        "class Backend(Enum):\n    FAST = 'a.b.Fast'\n    SLOW = 'slow'\n"
    )
    return SourceTree(package)


def test_annotations_and_defaults_are_followed_across_modules(source: SourceTree) -> None:
    fields = {name: (module, node) for module, name, node in source.class_fields("vllm.config", "Cache")}
    assert list(fields) == ["shared", "dtype", "backend", "size", "later"]
    hints = {name: source.hint(module, node.annotation) for name, (module, node) in fields.items()}
    assert (hints["dtype"].choices, hints["dtype"].types) == (["auto", "fp8"], {"None", "Literal"})
    assert hints["backend"].choices == ["FAST", "slow"]  # what a user writes: the name, where the value is a path
    module, node = fields["backend"]
    assert node.value is not None
    assert source.value(module, node.value) == "FAST"
    size = fields["size"][1].value
    assert isinstance(size, ast.Call)
    assert source.value(module, size.keywords[0].value) == 16


def test_what_only_running_the_code_would_tell_is_not_guessed(source: SourceTree) -> None:
    with pytest.raises(UnresolvedError):
        source.value("vllm.config.kinds", ast.parse("os.environ['X']", mode="eval").body)


def test_functions_are_found_inside_classes() -> None:
    tree = ast.parse("class A:\n    def f(self): ...\ndef g(): ...\n")
    assert [f.name for f in functions(tree)] == ["g", "f"]


def _table(version: str) -> dict[str, Any]:
    text = (ROOT / "search_spaces" / "releases" / f"{version}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe loaders
    return found


@pytest.mark.parametrize("version", known_releases())
def test_a_table_is_written_as_the_script_writes_it(version: str) -> None:
    text = (ROOT / "search_spaces" / "releases" / f"{version}.yaml").read_text(encoding="utf-8")
    assert to_yaml(_table(version)) == text


def test_what_is_removed_is_what_the_table_before_still_has() -> None:
    tables = [_table(version) for version in known_releases()]
    for before, after in itertools.pairwise(tables):
        for kind in ("flags", "speculative_fields", "methods"):
            assert after["removed"][kind] == sorted(set(before[kind]) - set(after[kind]))


@pytest.mark.engine
def test_the_table_of_the_installed_engine_is_what_its_own_source_says() -> None:
    package = next((ROOT / ".engine" / "lib").glob("python*/site-packages/vllm"))
    made = extract(package)
    committed = _table(made["version"])
    del committed["removed"]  # needs the source of the release before
    assert made == committed
