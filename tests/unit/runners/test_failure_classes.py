"""Failure classes: of logs that vLLM 0.32 really wrote (excerpts in logs/), and of lines known from other sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.failures import classify_failure, read_log, tail_of

LOGS = Path(__file__).with_name("logs")
LOADED = "INFO 11-29 18:32:33 [gpu_model_runner.py:1] Model loading took 14.9 GiB memory\n"
CAPTURING = LOADED + "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  10%\n"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    ("log", "exit_code", "kind", "named"),
    [
        ("bad_choice", 2, "bad_flag", ["--kv-cache-dtype", "'fp7'"]),
        ("bad_flag", 2, "bad_flag", ["--num-speculative-tokenz"]),
        ("block_size", 1, "unsupported", ["17", "MultipleOf(32)"]),
        ("dflash2", 1, "unsupported", ["'dflash2'"]),
        ("dflash2_arch", 1, "unsupported", ["Model Runner V1 does not support: DFlash candidate-head drafts"]),
        ("kv_too_small", 1, "kv_too_small", ["1024", "224", "--max-model-len"]),
        ("missing_draft", 1, "missing_model", ["'/models/nothing'"]),
        ("missing_model", 1, "missing_model", ["'/models/nothing-here'"]),
        ("model_len", 1, "bad_flag", ["max_model_len (100000)", "8192"]),
        ("no_weights", 1, "missing_model", ["/models/no-weights"]),
        ("not_downloaded", 1, "missing_model", ["download"]),
        ("odd_arch", 1, "unsupported", ["'foo'"]),
        ("spec_bad_key", 1, "bad_flag", ["'num_speculative_tokenz'"]),
        ("suffix", 1, "unsupported", ["Arctic Inference", "arctic-inference==0.1.1"]),
        ("wrong_hidden", 1, "draft_mismatch", ["[128, 384]", "[192, 576]"]),
    ],
)
def test_a_real_log_gets_its_class_and_names_the_cause(log: str, exit_code: int, kind: str, named: list[str]) -> None:
    failure = classify_failure(read_log(LOGS / f"{log}.txt"), exit_code)
    assert failure.kind == kind
    assert [name for name in named if name not in failure.message] == []
    assert "\n" not in failure.message
    assert failure.infrastructure is False


def test_every_log_excerpt_is_tested() -> None:
    tested = test_a_real_log_gets_its_class_and_names_the_cause.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert sorted(path.stem for path in LOGS.glob("*.txt")) == sorted(case[0] for case in tested)


@pytest.mark.parametrize(
    ("log", "kind", "infrastructure"),
    [
        (OUT_OF_MEMORY, "oom_weights", False),
        (LOADED + OUT_OF_MEMORY, "oom_kv", False),
        (CAPTURING + OUT_OF_MEMORY, "oom_graph_capture", False),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
            "oom_kv",
            False,
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing", "oom_kv", False),
        (
            "Free memory on device cuda:0 (10.1/79.2 GiB) on startup is less than desired GPU memory utilization",
            "gpu_busy",
            True,
        ),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "oom_host", False),
        ("OSError: [Errno 28] No space left on device: '/cache/x'", "disk_full", True),
        ("OSError: [Errno 98] Address already in use", "port", True),
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", "gated_model", False),
        ("RuntimeError: NCCL error: unhandled system error", "nccl", True),
        ("RuntimeError: Found no NVIDIA driver on your system.", "driver", True),
        ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.", "dtype", False),
    ],
)
def test_a_known_line_gets_its_class(log: str, kind: str, infrastructure: bool) -> None:
    failure = classify_failure(log, 1)
    assert (failure.kind, failure.infrastructure) == (kind, infrastructure)


def test_a_warning_that_quotes_an_error_is_not_the_cause() -> None:
    log = (
        "(APIServer pid=1) WARNING 11-29 18:32:14 [utils.py:255] like `OSError: [Errno 28] No space left on device`\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "ZeroDivisionError: division by zero\n"
    )
    failure = classify_failure(log, 1)
    assert (failure.kind, failure.infrastructure) == ("crash", False)
    assert "ZeroDivisionError: division by zero" in failure.message


def test_a_crash_is_told_by_the_end_of_the_first_traceback() -> None:
    log = (
        "(EngineCore pid=7) ERROR 11-29 18:32:33 [core.py:1510] Traceback (most recent call last):\n"
        '(EngineCore pid=7) ERROR 11-29 18:32:33 [core.py:1510]   File "core.py", line 3, in step\n'
        "(EngineCore pid=7) ERROR 11-29 18:32:33 [core.py:1510] KeyError: 'the cause'\n"
        "Traceback (most recent call last):\n"
        '  File "utils.py", line 1431, in wait\n'
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert "KeyError: 'the cause'" in classify_failure(log, 1).message


def test_a_kill_without_words_is_the_hosts_doing() -> None:
    failure = classify_failure("INFO 11-29 18:32:33 [x.py:1] all is well\n", -9)
    assert (failure.kind, failure.infrastructure) == ("killed", True)


@pytest.mark.parametrize(
    ("exit_code", "said"), [(-11, "signal SIGSEGV"), (3, "exit code 3"), (None, "unknown exit code")]
)
def test_silence_is_a_crash_that_says_how_it_ended(exit_code: int | None, said: str) -> None:
    failure = classify_failure("", exit_code)
    assert failure.kind == "crash"
    assert said in failure.message
    assert "wrote nothing" in failure.message


def test_braces_in_a_log_are_only_text() -> None:
    failure = classify_failure("x.py: error: unrecognized arguments: {why} {0.__class__}", 2)
    assert "{why} {0.__class__}" in failure.message


def test_a_quotation_is_bounded() -> None:
    failure = classify_failure("x.py: error: unrecognized arguments: " + "--a " * 10_000, 2)
    assert len(failure.message) < 500


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert read_log(tmp_path / "none.log") == ""


def test_the_tail_is_the_end() -> None:
    assert tail_of("a\nb\nc\n", 2) == "b\nc"
