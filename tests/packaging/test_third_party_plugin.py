"""A package of somebody else, installed beside ours: its format, exporter and search space are there by their names."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.packaging.conftest import Installation

PLUGIN = Path(__file__).parent / "example_plugin"

# The limit is for a loaded machine: pip and the first import of numpy take seconds of CPU.
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def with_plugin(own_installation: "Installation", tmp_path_factory: pytest.TempPathFactory) -> "Installation":
    """Our wheel and the plugin's."""
    out = tmp_path_factory.mktemp("plugin")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--skip-dependency-check",
        "--outdir",
        str(out),
    ]
    done = subprocess.run([*build, str(PLUGIN)], cwd=out, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    own_installation.install(wheel)
    return own_installation


def test_the_plugin_keeps_the_contracts(with_plugin: "Installation", tmp_path: Path) -> None:
    checks = ["-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path), str(PLUGIN / "contract_checks.py")]
    done = with_plugin.run("python", "-m", "pytest", *checks, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 passed" in done.stdout


def test_the_command_line_knows_the_plugin_s_format(with_plugin: "Installation") -> None:
    done = with_plugin.run("tune", "inspect", str(PLUGIN / "asked.jsonl"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["format"] == "asked"


def test_the_command_line_names_the_plugin_s_exporter_and_space(with_plugin: "Installation") -> None:
    done = with_plugin.run("tune", "export", "none", "--format", "nothing")
    assert done.returncode == 2
    assert "env-file" in done.stderr
    code = "from search_spaces import preset_names; print(preset_names())"
    assert "short-drafts" in with_plugin.run("python", "-c", code).stdout


def test_a_broken_plugin_is_named_with_the_remedy(with_plugin: "Installation") -> None:
    (site_packages,) = with_plugin.directory.glob("lib/python3.*/site-packages")
    module = site_packages / "dflash_tuner_example" / "asked.py"
    text = module.read_text(encoding="utf-8")
    module.write_text("raise RuntimeError('of last year')\n", encoding="utf-8")
    done = with_plugin.run("tune", "inspect", str(PLUGIN / "asked.jsonl"))
    module.write_text(text, encoding="utf-8")
    assert done.returncode == 2
    for piece in ("dflash_tuner_example.asked:ASKED", "dflash-tuner-example", "of last year", "uninstall"):
        assert piece in done.stderr
    assert "Traceback" not in done.stderr
