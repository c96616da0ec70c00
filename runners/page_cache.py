"""Weight files read ahead into the page cache, so that the first launch of a study is no slower than the others.

Finds the files of a model directory or of the hub's cache on this host. Best effort: what cannot be found or would not
fit into free memory is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from runners.hub import hub_cache

_PATTERNS = ("*.safetensors", "*.bin", "*.gguf")
# More would push out what else the host needs, and the start of the files before their end is read.
_SHARE_OF_FREE_MEMORY = 0.6


def warm_page_cache(models: Iterable[str]) -> int:
    """Ask the kernel to read the models' weights ahead.

    Args:
        models: Directories or hub names.

    Returns:
        Bytes asked for; 0 when there are none, or too many.
    """
    files: dict[Path, int] = {}
    for path in (path for model in models for path in weight_files(model)):
        with suppress(OSError):  # a link to nowhere, or not ours to read: the engine will say so better
            files[path.resolve()] = path.stat().st_size
    total = sum(files.values())
    if total > _SHARE_OF_FREE_MEMORY * psutil.virtual_memory().available:
        return 0
    asked = 0
    for path, size in files.items():
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            asked += size
    return asked


def weight_files(model: str) -> list[Path]:
    """The weight files of a directory or of a model in the hub's cache."""
    directory, glob = Path(model), ""
    if not directory.is_dir():
        cache = hub_cache()
        if cache is None:
            return []
        directory, glob = cache / f"models--{model.replace('/', '--')}" / "snapshots", "*/"
    return [path for pattern in _PATTERNS for path in directory.glob(glob + pattern)]
