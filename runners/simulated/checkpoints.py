"""What the simulated engine reads of a checkpoint: the config.json of a local directory, nothing else.

A name on a hub ("organisation/model") is taken to exist and to have no config.json; the calibration fills in.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runners.simulated.errors import value_error

__all__ = ["model_config"]


def model_config(model: str) -> Mapping[str, Any]:
    """config.json of a local directory, or an empty mapping for a hub's name.

    Raises:
        StartupError: the directory has no config.json, or the name can only be a path and does not exist.
    """
    path = Path(model)
    if path.is_dir():
        file = path / "config.json"
        if not file.is_file():
            raise value_error(f"Invalid repository ID or local directory specified: '{model}' has no config.json.")
        content: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return content
    if path.is_absolute() or model.startswith(".") or model.count("/") > 1:
        raise value_error(f"Invalid repository ID or local directory specified: '{model}'.")
    return {}
