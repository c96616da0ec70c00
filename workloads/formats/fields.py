"""Reading single fields of records that others wrote, with an error that names field, value and what it must be."""

from collections.abc import Mapping
from typing import Any

import orjson

from workloads.errors import LineError


def shown(value: Any) -> str:
    """A value short enough for a message; values hold prompts, which messages must not spread."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def present(record: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that the record has with a value; None without one."""
    for name in names:
        value = record.get(name)
        if value is not None and value != "":
            return value
    return None


def number_of(text: str) -> int | float | None:
    """The number that a text writes, as OTLP, CSV and some SDKs do; None for any other text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def text(record: Mapping[str, Any], name: str) -> str:
    """A text that must be there.

    Raises:
        LineError: if it is missing, empty or no text.
    """
    if name not in record:
        raise LineError(f'the required field "{name}" is missing')
    value = record[name]
    if not isinstance(value, str) or not value:
        raise LineError(f'"{name}" is {shown(value)}; it must be a text and not empty')
    return value


def count(record: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    """A whole number that must be there; CSV spells it as a text.

    Raises:
        LineError: if it is missing, no whole number or too small.
    """
    if name not in record:
        raise LineError(f'the required field "{name}" is missing')
    found = as_count(record[name])
    if found is None or found < least:
        raise LineError(f'"{name}" is {shown(record[name])}; it must be a whole number of at least {least}')
    return found


def as_count(value: Any) -> int | None:
    """A whole number, also one that is written as a text or with a fraction of 0; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else None


def as_tokens(value: Any) -> int | None:
    """A recorded number of tokens; None if it is none."""
    found = as_count(value)
    return found if found is not None and found >= 0 else None


def as_seconds(value: Any) -> float | None:
    """A recorded duration that makes sense; None otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < float("inf") else None


def structure(value: Any, name: str) -> Any:
    """A value that may be written as a JSON text, as columns and span attributes have it.

    Raises:
        LineError: if it is a text that begins like JSON but is none.
    """
    if isinstance(value, str) and value[:1] in "[{" and value:
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise LineError(f'"{name}" is a text that is not valid JSON: {error.msg}') from None
    return value


def as_text(value: Any) -> str | None:
    """A label: a text that is not empty; None otherwise."""
    return value if isinstance(value, str) and value else None
