"""Exports for one host keep the contract: compose, systemd, the shell, vLLM's own YAML, the recommendation as JSON."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

from tests.contract.exporter_schemas import OwnContract, Started, loaded, problems
from tuner.exporters.testing import provenance, samples, serve_config
from tuner.records import Recommendation


def compose_command() -> list[str] | None:
    """`docker compose` where it is installed, else the older `docker-compose`, else None."""
    plugin = ["docker", "compose"]
    if shutil.which("docker") and not subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode:
        return plugin
    return ["docker-compose"] if shutil.which("docker-compose") else None


COMPOSE = compose_command()


class TestCompose(OwnContract, name="compose"):
    """Of `tuner/exporters/compose.py`."""

    def started(self, text: str) -> Started:
        service = loaded(text)["services"]["vllm"]
        assert service["entrypoint"] == ["vllm", "serve"]
        assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", " ".join(service["command"]))
        environment = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
        return [word.replace("$$", "$") for word in service["command"]], environment

    def invalid(self, text: str) -> list[str]:
        return problems(loaded(text), "compose.json")

    @pytest.mark.slow
    @pytest.mark.skipif(
        COMPOSE is None, reason="the schema is checked above; compose itself: apt install docker-compose"
    )
    def test_compose_itself_reads_it_back(self, tmp_path: Path) -> None:
        assert COMPOSE is not None
        for sample in ("two GPUs", "hostile"):
            made = samples()[sample]
            path = tmp_path / "compose.yaml"
            path.write_text(self.exporter.export(made, provenance()), encoding="utf-8")
            done = subprocess.run(
                [*COMPOSE, "-f", str(path), "config"], capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, (sample, done.stderr)
            words = [word.replace("$$", "$") for word in loaded(done.stdout)["services"]["vllm"]["command"]]
            asked = made.serve_config.to_argv()
            assert tuple(words)[: len(asked)] == asked, sample


class TestSystemd(OwnContract, name="systemd"):
    """Of `tuner/exporters/systemd.py`, read by the rules of systemd.syntax(7) and systemd.service(5)."""

    def started(self, text: str) -> Started:
        settings_ = [line.partition("=") for line in text.splitlines() if line[:1] not in {"#", "[", ""}]
        (command,) = [value for name, _, value in settings_ if name == "ExecStart"]
        words = [word.replace("$$", "$") for word in systemd_words(command)]
        assert words[:3] == ["/usr/bin/env", "vllm", "serve"]
        assignments = [systemd_words(value) for name, _, value in settings_ if name == "Environment"]
        variables = dict(word.split("=", 1) for assigned in assignments for word in assigned)
        return words[3:], variables

    def invalid(self, text: str) -> list[str]:
        known = {"[Unit]", "[Service]", "[Install]"}
        lines = [line for line in text.split("\n") if line and not line.startswith("#")]
        return [line for line in lines if line not in known and not re.match(r"[A-Z][A-Za-z]+=", line)]

    def broken(self, text: str) -> str:
        return text + "no setting\n"

    @pytest.mark.slow
    @pytest.mark.skipif(
        not shutil.which("systemd-analyze"), reason="its syntax is checked above; systemd itself: apt install systemd"
    )
    def test_systemd_itself_reads_it(self, tmp_path: Path) -> None:
        for sample, made in samples().items():
            unit = tmp_path / "vllm.service"
            unit.write_text(self.exporter.export(made, provenance()), encoding="utf-8")
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", str(unit)],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            about = [line for line in done.stderr.splitlines() if "vllm.service" in line]
            assert (done.returncode, about) == (0, []), (sample, done.stderr)


def systemd_words(text: str) -> list[str]:
    """Words of a setting: C escapes and quotes undone, `%%` a `%`."""
    words: list[str] = []
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|(\S+)', text):
        inner = match[1] if match[1] is not None else match[2]
        if match[1] is not None:
            inner = re.sub(rb"\\x([0-9a-f]{2})|\\(.)", _unescape, inner.encode()).decode()
        assert not re.search(r"(?<!%)(%%)*%(?!%)", inner), "a specifier"
        words.append(inner.replace("%%", "%"))
    return words


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes([int(match[1], 16)])
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(match[2], match[2])


class TestYaml(OwnContract, name="yaml"):
    """Of `tuner/exporters/serve_yaml.py`; variables are a comment there."""

    takes_variables: ClassVar[bool] = False

    def started(self, text: str) -> Started:
        document = loaded(text)
        model = document.pop("model")
        args = {
            (name.removeprefix("no-") if name.startswith("no-") else name): (False if name.startswith("no-") else value)
            for name, value in document.items()
        }
        read = serve_config({}, model=model).model_copy(update={"fixed_args": args, "tuned_args": {}})
        return read.to_argv(), {}

    def invalid(self, text: str) -> list[str]:
        return [] if "unknown" not in loaded(text) else ["unknown"]


class TestShell(OwnContract, name="sh"):
    """Of `tuner/exporters/serve_sh.py`; that a shell starts it is in test_exports.py."""

    def started(self, text: str) -> Started:
        code = text[text.index("\nexport ") if "\nexport " in text else text.index("\nexec ") :]
        words = shlex.split(code.replace("\\\n", " "), posix=True)
        at = words.index("exec")
        assignments = [word for word in words[:at] if word != "export"]
        assert words[at : at + 3] == ["exec", "vllm", "serve"]
        assert words[-1] == "$@"
        return words[at + 3 : -1], dict(word.split("=", 1) for word in assignments)

    def invalid(self, text: str) -> list[str]:
        done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
        return done.stderr.splitlines()

    def broken(self, text: str) -> str:
        return text + "if\n"


class TestJson(OwnContract, name="json"):
    """The recommendation itself; the provenance is in a file beside it."""

    def started(self, text: str) -> Started:
        read = Recommendation.model_validate_json(text).serve_config
        return read.to_argv(), read.env

    def invalid(self, text: str) -> list[str]:
        return [] if Recommendation.model_validate_json(text) else ["empty"]

    def test_its_schema_refuses_a_broken_one(self) -> None:
        with pytest.raises(ValueError, match="unknown"):
            Recommendation.model_validate_json(
                self.exporter.export(samples()["plain"], provenance())[:-2] + ',"unknown":1}'
            )

    def test_it_says_where_the_answer_comes_from_and_how_sure_it_is(self) -> None:
        text = self.exporter.export(samples()["plain"], provenance())
        assert Recommendation.model_validate_json(text) == samples()["plain"]
