"""What traces without text have in common: two lengths, blocks of the prompt by id, and a session."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats.building import block_size
from workloads.formats.fields import count, shown
from workloads.formats.format import Reading
from workloads.shape import Shape


def read_shape(record: Mapping[str, Any], reading: Reading, documented_block: int) -> Shape:
    """The shape in a record with the fields input_length, output_length and perhaps hash_ids.

    The size of blocks is the documented one unless the first record shows another; all records must fit it.

    Raises:
        LineError: if a field is missing or wrong.
    """
    input_length = count(record, "input_length", least=1)
    output_length = count(record, "output_length", least=1)
    hash_ids = read_hash_ids(record.get("hash_ids"), "hash_ids")
    if not hash_ids:
        return Shape(input_length, output_length)
    if "block" not in reading.state:
        size = block_size([(input_length, len(hash_ids))], documented_block)
        reading.state["block"] = size
        reading.note(f"hash_ids read as blocks of {size} tokens")
    return Shape(input_length, output_length, hash_ids, reading.state["block"])


def read_hash_ids(value: Any, name: str) -> tuple[int, ...]:
    """Ids of blocks; none if the field is absent.

    Raises:
        LineError: if it is no list of whole numbers.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise LineError(f'"{name}" is {shown(value)}; it must be a list of whole numbers')
    return tuple(value)


def column(records: Sequence[Mapping[str, Any]], *names: str) -> list[Any]:
    """The first of these fields that a record has, for each record that has one."""
    return [next(record[name] for name in names if name in record) for record in records if record.keys() & set(names)]
