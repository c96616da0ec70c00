"""Weights that were read ahead are in memory; what is none or too large is left alone."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import psutil
import pytest

from runners.page_cache import warm_page_cache, weight_files

SIZE = 4 * 2**20


def resident_share(path: Path) -> float:
    """Share of a file's pages in memory, by mincore(2)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=3) as mapped:
        pages = -(-len(mapped) // mmap.PAGESIZE)
        states = (ctypes.c_ubyte * pages)()
        address = ctypes.addressof(view := ctypes.c_char.from_buffer(mapped))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), states) == 0
        del view
        return sum(state & 1 for state in states) / pages


def test_weights_are_in_memory_afterwards(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(os.urandom(SIZE))
    with weights.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_share(weights) > 0.5:
        pytest.skip("this file system keeps everything in memory")
    assert warm_page_cache([str(tmp_path)]) == SIZE
    end = time.monotonic() + 5
    while resident_share(weights) < 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert resident_share(weights) == 1


def test_a_model_of_the_hub_is_found_in_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--z-lab--Draft" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").touch()
    assert weight_files("z-lab/Draft") == [snapshot / "model.safetensors"]
    assert weight_files("z-lab/Other") == []


def test_what_does_not_fit_into_memory_is_left_alone(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(psutil.virtual_memory().total)  # a hole, it takes no space
    assert warm_page_cache([str(tmp_path)]) == 0


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "blob")
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    assert warm_page_cache([str(tmp_path)]) == 100
