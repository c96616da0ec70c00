"""The formats that recorded traffic comes in: one module each, behind one protocol.

A format recognises its records by content and turns one record into a `Request`. Reading the file, counting lines and
checking what must hold between lines is `workloads.read`.
"""

from workloads.formats.format import Format, Reading
from workloads.formats.native import NATIVE
from workloads.formats.openai_batch import OPENAI_BATCH

FORMATS: dict[str, Format] = {known.name: known for known in (NATIVE, OPENAI_BATCH)}
"""Known formats by name, in the order in which they are tried."""

__all__ = ["FORMATS", "NATIVE", "OPENAI_BATCH", "Format", "Reading"]
