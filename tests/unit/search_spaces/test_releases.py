"""Looking up what a vLLM release can do."""

import pytest

from search_spaces import SearchSpaceError, known_releases, load_release


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
