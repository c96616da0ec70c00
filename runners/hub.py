"""Where the Hugging Face hub's client keeps what it downloaded on this host. Downloads nothing."""

from __future__ import annotations

import os
from pathlib import Path


def hub_cache() -> Path | None:
    """The directory with one ``models--ORG--NAME`` each; None when nothing was ever downloaded."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return cache if cache.is_dir() else None
