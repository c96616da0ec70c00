"""Looking up what a vLLM release can do."""

import pytest

from search_spaces import Checkpoint, SearchSpaceError, known_releases, load_release


def test_releases_are_in_the_order_of_their_numbers() -> None:
    assert known_releases() == ("0.28", "0.29", "0.30", "0.31", "0.32", "0.33")


@pytest.mark.parametrize("line", known_releases())
def test_a_known_line_is_found_by_any_of_its_patches_without_a_warning(line: str) -> None:
    release, warning = load_release(f"{line}.7+cpu")
    assert (line, None) == (release.version, warning)


@pytest.mark.parametrize("version", ["0.34.0", "0.100", "1.0.0rc1"])
def test_a_newer_release_is_served_by_the_newest_table_with_a_warning(version: str) -> None:
    release, warning = load_release(version)
    assert release.version == "0.33"
    assert warning is not None
    assert version in warning


@pytest.mark.parametrize("version", ["0.27.1", "0.3", "0.9"])
def test_a_release_older_than_every_table_is_refused(version: str) -> None:
    with pytest.raises(SearchSpaceError, match=r"older than 0\.28"):
        load_release(version)


@pytest.mark.parametrize("version", ["", "nightly", "v0.32"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(SearchSpaceError, match=r"not of the form major\.minor"):
        load_release(version)


def _draft(*architectures: str, speculators_type: str | None = None) -> Checkpoint:
    sizes: dict[str, int | None] = dict.fromkeys(
        ("hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings")
    )
    return Checkpoint(path="d", architectures=architectures, speculators_type=speculators_type, **sizes)


def test_facts_that_decide_knobs_are_those_of_the_source() -> None:
    facts = {
        version: (
            release.dflash_drops_last_block,
            release.can_disable_block_drop,
            release.excess_draft_tokens,
            "medusa" in release.methods,
        )
        for version in known_releases()
        for release, _ in [load_release(version)]
    }
    assert facts == {
        "0.28": (True, False, "crash", True),
        "0.29": (True, False, "crash", True),
        "0.30": (True, True, "crash", True),
        "0.31": (True, True, "crash", True),
        "0.32": (True, True, "crash", True),
        "0.33": (False, False, "lowers_concurrency", False),
    }


@pytest.mark.parametrize(
    ("version", "draft", "on_cpu", "problem"),
    [
        ("0.28", _draft("DFlashDraftModel"), True, None),
        ("0.28", _draft("DFlash2DraftModel"), False, None),
        ("0.32", _draft("DFlash2DraftModel"), True, "model runner V2"),
        ("0.28", _draft("DFlash2DraftModel", speculators_type="dflash2"), False, "cannot load Speculators drafts"),
        ("0.29", _draft("DFlash2DraftModel", speculators_type="dflash2"), False, None),
        ("0.32", _draft("Qwen3DSparkModel"), True, "model runner V2"),
        ("0.32", _draft("Qwen3DSparkModel"), False, None),
        ("0.32", _draft("Qwen3XPressModel"), False, "knows no draft architecture Qwen3XPressModel"),
        ("0.33", _draft("Qwen3XPressModel"), False, None),
        ("0.33", _draft("Qwen3ForCausalLM"), False, "knows no draft architecture"),
        ("0.33", _draft(), False, "knows no draft architecture none"),
    ],
)
def test_a_draft_is_served_only_where_release_and_model_runner_can(
    version: str, draft: Checkpoint, on_cpu: bool, problem: str | None
) -> None:
    release, _ = load_release(version)
    found = release.draft_problem(draft, on_cpu=on_cpu)
    assert found is None if problem is None else problem in (found or "")


def test_a_setting_takes_any_value_unless_its_list_is_closed() -> None:
    release, _ = load_release("0.32")
    assert release.flags["kv-cache-dtype"].takes("fp8")
    assert not release.flags["kv-cache-dtype"].takes("fp7")
    assert release.flags["attention-backend"].takes("flash_attn")
    assert release.flags["max-num-seqs"].takes(7)
