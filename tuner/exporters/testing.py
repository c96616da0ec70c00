"""What every exporter must do, as a test class to inherit: ours pass it, and so must a third party's.

Set `exporter` in a subclass whose name starts with `Test`, say in `started` how the written file is read, and let
pytest collect it. Imports no test library.
"""
# These are tests, shipped so that exporters outside this project can be held to them: they assert (S101), and their
# names describe them (D102).
# ruff: noqa: D102, S101

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from search_spaces import Argument, ServeConfig
from tuner.exporters.exporter import Exporter
from tuner.records import Effect, Provenance, Recommendation

HOSTILE = """/models/it's "a" model; $(touch owned) `touch owned` $HOME \\ * {{ .Release }} %n \t{} & | > x #é"""
"""A path that shells, templates, systemd and YAML would each take for something else."""
BREAKOUT = "x\ny: 1\r\n\u2028exec touch owned\x1b[31m -->"
"""A name that tries to leave a comment."""


class ExporterContract(ABC):
    """Properties of an exporter.

    Attributes:
        exporter: The exporter under test.
        takes_variables: Whether the format can carry environment variables of the engine.
    """

    exporter: ClassVar[Exporter]
    takes_variables: ClassVar[bool] = True

    @abstractmethod
    def started(self, text: str) -> tuple[Sequence[str], Mapping[str, str]]:
        """What a deployment of this file starts: the words after `vllm serve`, and the variables that the file sets.

        Read the file as its consumer would: parse it, undo its quoting and its variables. Words that the format adds
        for itself, such as --host and --port, may follow the configuration's own; other variables may be there too.
        """

    def test_its_name_and_file_are_plain(self) -> None:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.exporter.name)
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.exporter.file_name)
        assert self.exporter.summary

    def test_it_starts_what_was_recommended(self) -> None:
        for name, answer in samples().items():
            words, variables = self.started(self.exporter.export(answer, provenance()))
            asked = answer.serve_config.to_argv()
            assert tuple(words)[: len(asked)] == asked, name
            if self.takes_variables:
                assert dict(answer.serve_config.env).items() <= dict(variables).items(), name

    def test_the_same_answer_gives_the_same_file(self) -> None:
        answer = samples()["plain"]
        assert self.exporter.export(answer, provenance()) == self.exporter.export(answer, provenance())

    def test_it_is_text_that_ends_with_a_line_and_holds_no_control_characters(self) -> None:
        for answer in samples().values():
            text = self.exporter.export(answer, provenance(cpu=BREAKOUT, gpus=(BREAKOUT,)))
            assert text.endswith("\n")
            assert all(c.isprintable() or c in "\n\t" for c in text.replace("\u2028", " "))

    def test_it_says_where_the_answer_comes_from_and_how_sure_it_is(self) -> None:
        answer = samples()["plain"]
        text = self.exporter.export(answer, provenance())
        where = provenance()
        known = (answer.condition, where.tuner_version, where.engine_version, where.workload_digest, str(where.study))
        assert [piece for piece in known if piece not in text] == []
        assert "1.50" in text
        assert "1.20" in text

    def test_a_simulated_answer_says_so(self) -> None:
        answer = samples()["plain"]
        assert "simulated" not in self.exporter.export(answer, provenance()).lower().replace('"simulated": false', "")
        marked = answer.model_copy(update={"simulated": True})
        assert "simulated" in self.exporter.export(marked, provenance()).lower()


def provenance(**changes: object) -> Provenance:
    """Where the samples come from."""
    made = Provenance(
        created_at="2026-01-01T00:00:00+00:00",
        tuner_version="0.1.0",
        python="3.11.9",
        host="Linux",
        cpu="A CPU (2 cores)",
        memory_gib=64.0,
        gpus=("NVIDIA H100 80GB HBM3 (80 GiB)",) * 2,
        engine_version="0.32.0",
        workload_digest="sha256:0123456789abcdef",
        study="nightly",
        run="f00dfeed",
    )
    return made.model_copy(update=changes)


def samples() -> dict[str, Recommendation]:
    """Answers of many kinds, hostile ones among them."""
    speculative: dict[str, Argument] = {
        "speculative-config": {"method": "dflash", "num_speculative_tokens": 7, "model": "org/draft"},
        "enable-prefix-caching": False,
        "max-num-seqs": 64,
        "cudagraph-capture-sizes": [1, 2, 4],
    }
    nested: dict[str, Argument] = {
        "compilation-config": {"mode": 3, "pass_config": {"fuse_norm_quant": True}},
        "tensor-parallel-size": 2,
    }
    hostile: dict[str, Argument] = {"speculative-config": {"method": "dflash", "model": HOSTILE + "-draft"}}
    return {
        "plain": answer(serve_config(speculative)),
        "two GPUs": answer(serve_config(nested)),
        "defaults": answer(serve_config({})),
        "local": answer(serve_config({}, model="/models/target")),
        "hostile": answer(serve_config(hostile, model=HOSTILE, env={"ODD": HOSTILE}), condition=BREAKOUT),
        "baseline": answer(serve_config({})).model_copy(update={"effect": None, "verdict": "keep"}),
    }


def serve_config(
    tuned: Mapping[str, Argument], *, model: str = "org/target", env: Mapping[str, str] | None = None
) -> ServeConfig:
    """A configuration made by hand."""
    return ServeConfig(
        model=model,
        values={"method": "dflash", "num_speculative_tokens": 7},
        fixed_args={"dtype": "bfloat16", "gpu-memory-utilization": "0.90"},
        tuned_args=dict(tuned),
        env={"VLLM_LOGGING_LEVEL": "INFO"} if env is None else dict(env),
        identity={"method": "dflash", "num_speculative_tokens": 7},
    )


def answer(config: ServeConfig, *, condition: str = "code") -> Recommendation:
    """A recommendation of it, 1.5 times as good as the baseline."""
    baseline = ServeConfig(
        model="org/target", values={"method": "none"}, fixed_args={}, tuned_args={}, identity={"method": "none"}
    )
    return Recommendation(
        condition=condition,
        profile="code",
        verdict="change",
        serve_config=config,
        baseline=baseline,
        objective="throughput",
        value=300.0,
        baseline_value=200.0,
        effect=Effect(gain=1.5, low=1.2, high=1.9, confidence=0.95, pairs=8),
        best_candidate=config.label(),
        output_check=None,
        slo_met=True,
        reason="because",
        caveats=("one caveat",),
        trials=(3, 5, 8),
        metrics={},
        simulated=False,
    )
