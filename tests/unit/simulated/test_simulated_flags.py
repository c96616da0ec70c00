"""The command line, read as `vllm serve` reads it."""

from pathlib import Path

import pytest

from runners.simulated.flags import parse_flags


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        parse_flags(argv)
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_defaults_are_those_of_vllm() -> None:
    flags = parse_flags(["serve", "some/model"])
    assert flags.served_model_name == ("some/model",)
    assert flags.enable_prefix_caching
    assert flags.speculative_config is None
    assert (flags.port, flags.gpu_memory_utilization, flags.block_size) == (8000, 0.92, None)


@pytest.mark.parametrize("argv", [["serve", "m"], ["m"], ["--model", "m"], ["serve", "--model=m"]])
def test_the_model_is_positional_or_a_flag(argv: list[str]) -> None:
    assert parse_flags(argv).model == "m"


def test_no_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "required: model" in refused(["serve"], capsys)


def test_unknown_flags_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "vllm serve: error: unrecognized arguments: --no-such-flag" in refused(["m", "--no-such-flag"], capsys)


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unrecognized arguments: --max-num-se=4" in refused(["m", "--max-num-se=4"], capsys)


def test_invalid_choices_name_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert "argument --kv-cache-dtype: invalid choice: 'fp3'" in refused(["m", "--kv-cache-dtype", "fp3"], capsys)


def test_underscores_are_dashes_and_amounts_have_suffixes() -> None:
    flags = parse_flags(["m", "--max_num_seqs=1k", "--max-num-batched-tokens", "4K", "--kv_cache_memory_bytes", "2G"])
    assert (flags.max_num_seqs, flags.max_num_batched_tokens, flags.kv_cache_memory_bytes) == (1000, 4096, 2**31)


def test_switches_have_a_negative_form() -> None:
    flags = parse_flags(["m", "--no-enable-prefix-caching", "--enforce-eager", "--no-enable-chunked-prefill"])
    assert not flags.enable_prefix_caching
    assert flags.enforce_eager


def test_the_speculative_config_is_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    flags = parse_flags(["m", "--speculative-config", '{"method":"dflash","num_speculative_tokens":7}'])
    assert flags.speculative_config == {"method": "dflash", "num_speculative_tokens": 7}
    assert "cannot be converted" in refused(["m", "--speculative-config", "{method}"], capsys)
    assert "must be a JSON object" in refused(["m", "--speculative-config", "7"], capsys)


def test_short_speculative_flags_merge_and_conflict(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_flags(["m", "--spec-method", "dflash", "--spec-tokens", "3"]).speculative_config == {
        "method": "dflash",
        "num_speculative_tokens": 3,
    }
    assert "conflicts" in refused(
        ["m", "--spec-tokens", "3", "--speculative-config", '{"num_speculative_tokens":7}'], capsys
    )


def test_a_config_file_comes_before_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "model: from-file\nmax-num-seqs: 4\nenable-prefix-caching: false\nserved-model-name: [a, b]\n"
        "speculative-config: {method: dflash, num_speculative_tokens: 7}\nseed: 3\n"
    )
    flags = parse_flags(["serve", "--config", str(file), "--max-num-seqs", "8"])
    assert (flags.model, flags.max_num_seqs, flags.seed) == ("from-file", 8, 3)
    assert not flags.enable_prefix_caching
    assert flags.served_model_name == ("a", "b")
    assert flags.speculative_config == {"method": "dflash", "num_speculative_tokens": 7}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("serve.txt", "model: m", "must be of a yaml/yml type"),
        ("serve.yaml", "- m", "must hold a mapping"),
        ("serve.yaml", "model: [", "Unable to read the config file"),
        ("serve.yaml", "no-such-flag: 1", "unrecognized arguments"),
    ],
)
def test_broken_config_files_are_refused(
    name: str, content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(content)
    assert reason in refused(["m", "--config", str(tmp_path / name)], capsys)


def test_a_missing_config_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Unable to read the config file" in refused(["m", "--config", "/nowhere/serve.yaml"], capsys)
    assert "expected one argument" in refused(["m", "--config"], capsys)
