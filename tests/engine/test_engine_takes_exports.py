"""The installed engine's own parser takes the command of every kind of export. Nothing is launched."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.contract.test_exporters import CONTRACTS
from tuner.exporters.testing import provenance, samples

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PYTHON = Path(__file__).resolve().parents[2] / ".engine" / "bin" / "python"
PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for format, sample, argv in json.load(sys.stdin):
    parsed = parser.parse_args(argv)
    assert parsed.model_tag == argv[0], (format, sample, parsed.model_tag)
"""


def test_the_engine_parses_the_command_of_every_export() -> None:
    lines = []
    for contract in CONTRACTS:
        for sample, made in samples().items():
            words, _ = contract().started(contract.exporter.export(made, provenance()))
            lines.append((contract.exporter.name, sample, list(words)))
    assert len(lines) > 50
    parsed = subprocess.run(
        [str(PYTHON), "-c", PARSE], input=json.dumps(lines), capture_output=True, text=True, check=False, timeout=280
    )
    assert parsed.returncode == 0, parsed.stderr[-2000:]
