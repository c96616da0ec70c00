"""Names in MLflow, which allows few signs."""

import re
from pathlib import Path

from tuner.store import file_name


def key_of(condition: str) -> str:
    """A condition's key as part of MLflow's names, which allow few signs and no odd paths."""
    plain = re.fullmatch(r"[\w\-. :/]+", condition) and all(part.strip(". ") for part in condition.split("/"))
    return condition if plain else file_name(condition)


def registered_name(model: str, condition: str) -> str:
    """Name of the registered model that holds the recommendations for one condition; MLflow forbids "/" and ":" there.

    Args:
        model: Directory or hub id of the target.
        condition: Key of the condition.
    """
    return "dflash-tuner." + re.sub(r"[/:]+", ".", f"{Path(model).name}.{key_of(condition)}")
