"""The contracts that dflash-tuner ships, held against this package: `pytest contract_checks.py`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dflash_tuner_example.asked import ASKED
from dflash_tuner_example.env_file import ENV_FILE

from search_spaces import load_space
from tuner.exporters import EXPORTERS
from tuner.exporters.testing import ExporterContract
from workloads.formats import FORMATS
from workloads.testing import FormatContract

HERE = Path(__file__).parent


class TestAsked(FormatContract):
    """The format."""

    format = ASKED
    sample = HERE / "asked.jsonl"
    broken = HERE / "asked.broken.jsonl"
    broken_line = 2
    reason = ('"asked" is 7', "must be a text")


class TestEnvFile(ExporterContract):
    """The exporter."""

    exporter = ENV_FILE

    def started(self, text: str) -> tuple[Sequence[str], Mapping[str, str]]:
        read = dict(line.split("=", 1) for line in text.splitlines())
        return json.loads(read["VLLM_ARGS"]), json.loads(read["VLLM_ENV"])


def test_the_tables_have_them() -> None:
    assert FORMATS["asked"] is ASKED
    assert EXPORTERS["env-file"] is ENV_FILE
    assert load_space("short-drafts").knobs["num_speculative_tokens"].choices == (3, 5, 7)
