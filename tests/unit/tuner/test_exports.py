"""What is handed to a deployment starts the recommended engine, whatever its names contain."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from search_spaces import Scalar
from tests.unit.tuner.made import CODE, PROVENANCE, dflash, measurement, record, resolved_space, rules
from tuner.exporters import EXPORTERS
from tuner.recommend import recommend
from tuner.records import Recommendation

HOSTILE = """/models/it's "a" model; $(touch owned) `touch owned` \\ * \t{} & | > x #é"""
Started = tuple[list[str], dict[str, str]]
BREAKOUT = "x\ny: 1\r\n\u2028exec touch owned\x1b[31m"


def answer(
    *, values: dict[str, Scalar] | None = None, model: str = "/models/target", env: dict[str, str] | None = None
) -> Recommendation:
    space = resolved_space(model=model, env=env)
    chosen = dflash(7, prefix_caching=False) if values is None else values
    records = [record(0, "baseline", space.baseline(), measurement("code", 1), space=space)]
    for number in range(2):
        for knobs, value in ((space.baseline(), 100.0), (chosen, 200.0)):
            made = measurement("code", value, outputs={"r": "same"})
            records.append(record(len(records), f"confirm/{number}/x/0", knobs, made, space=space))
    return recommend(CODE, records, rules())


@pytest.fixture
def started_with(tmp_path: Path) -> Callable[[str], Started]:
    """Runs a serve.sh with a `vllm` on PATH that writes down its arguments and environment."""
    fake = tmp_path / "bin" / "vllm"
    fake.parent.mkdir()
    fake.write_text(
        "#!/usr/bin/env python3\nimport json, os, sys\n"
        "json.dump([sys.argv[1:], dict(os.environ)], open(os.environ['SEEN'], 'w'))\n",
        encoding="utf-8",
    )
    fake.chmod(0o755)

    def start(text: str) -> Started:
        script = tmp_path / "serve.sh"
        script.write_text(text, encoding="utf-8")
        seen = tmp_path / "seen.json"
        env = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}", "SEEN": str(seen)}
        syntax = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, check=False)
        assert (syntax.returncode, syntax.stderr) == (0, "")
        ran = subprocess.run(
            ["sh", str(script), "--port", "8000"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        assert not (tmp_path / "owned").exists()
        argv, environment = json.loads(seen.read_text(encoding="utf-8"))
        return [str(word) for word in argv], environment

    return start


@pytest.mark.parametrize("model", ["/models/target", HOSTILE])
def test_the_script_starts_exactly_the_recommended_command(started_with: Callable[[str], Started], model: str) -> None:
    made = answer(model=model)
    argv, _ = started_with(EXPORTERS["sh"].export(made, PROVENANCE))
    assert argv == ["serve", *made.serve_config.to_argv(), "--port", "8000"]
    assert argv[1] == model


def test_the_script_sets_the_environment_whatever_it_holds(started_with: Callable[[str], Started]) -> None:
    env = {"OMP_NUM_THREADS": "2", "ODD": f"a'b\"c $(touch owned)\n{HOSTILE}"}
    _, seen = started_with(EXPORTERS["sh"].export(answer(env=env), PROVENANCE))
    assert env == {name: seen[name] for name in env}


@pytest.mark.parametrize("model", ["/models/target", HOSTILE, "null", "1e3", "- x", "a: b", "@x"])
def test_the_yaml_reads_back_as_the_recommended_flags(model: str) -> None:
    made = answer(model=model)
    document = yaml.safe_load(EXPORTERS["yaml"].export(made, PROVENANCE))
    assert document.pop("model") == model
    assert document == {
        "dtype": "float32",
        "no-enable-prefix-caching": True,
        "speculative-config": {"method": "dflash", "num_speculative_tokens": 7, "model": "/models/draft"},
    }


def test_the_json_reads_back_as_the_recommendation() -> None:
    made = answer()
    assert made == Recommendation.model_validate_json(EXPORTERS["json"].export(made, PROVENANCE))


def hostile_answer() -> Recommendation:
    return answer(env={"NAME": BREAKOUT}).model_copy(
        update={"condition": BREAKOUT, "objective": BREAKOUT, "caveats": (BREAKOUT,)}
    )


def test_control_characters_in_names_stay_inside_the_yaml_s_comments() -> None:
    text = EXPORTERS["yaml"].export(hostile_answer(), PROVENANCE.model_copy(update={"cpu": BREAKOUT}))
    assert set(yaml.safe_load(text)) == {
        "model",
        "dtype",
        "no-enable-prefix-caching",
        "speculative-config",
    }
    assert "\x1b" not in text


def test_control_characters_in_names_stay_inside_the_script_s_comments(
    started_with: Callable[[str], Started],
) -> None:
    made = hostile_answer()
    text = EXPORTERS["sh"].export(made, PROVENANCE.model_copy(update={"cpu": BREAKOUT}))
    assert started_with(text)[0] == ["serve", *made.serve_config.to_argv(), "--port", "8000"]


@pytest.mark.parametrize("name", ["yaml", "sh"])
def test_an_export_says_what_it_is_how_sure_and_where_from(name: str) -> None:
    made = answer()
    text = EXPORTERS[name].export(made, PROVENANCE)
    comments = "\n".join(line for line in text.splitlines() if line.startswith("# "))
    for piece in ("dflash-tuner 0.1.0", "code: change", "2.00x (95% interval", "vLLM 0.32.0", "sha256:abc"):
        assert piece in comments
    assert "SIMULATED" not in comments


@pytest.mark.parametrize("name", ["yaml", "sh"])
def test_a_simulated_answer_is_marked_first(name: str) -> None:
    made = answer().model_copy(update={"simulated": True})
    lines = [line for line in EXPORTERS[name].export(made, PROVENANCE).splitlines() if line.startswith("# ")]
    assert "SIMULATED" in lines[0]


def test_keeping_the_baseline_is_exported_too() -> None:
    made = answer(values=dflash(7)).model_copy(update={"effect": None, "verdict": "keep"})
    assert "nothing measured was reliably better" in EXPORTERS["yaml"].export(made, PROVENANCE)
