"""Alibaba's Bailian traces (also AIPerf's bailian_trace): turns of chats, with the prompt's blocks by id.

Times are seconds; an id stands for a block of 16 tokens. A chat's later turns name the turn before them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import shape_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text, count
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.traces import column, read_shape
from workloads.request import Request

BLOCK_TOKENS = 16
ROOT = -1


class BailianFormat:
    """Reads Bailian traces."""

    name = "bailian"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A chat's id and its parent's."""
        return any({"chat_id", "parent_chat_id", "input_length"} <= record.keys() for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Documented as seconds."""
        return RecordedTimes("timestamp", column(records, "timestamp"), "s")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        shape = read_shape(record, reading, BLOCK_TOKENS)
        chat, parent = count(record, "chat_id"), count(record, "parent_chat_id", least=ROOT)
        # A chat's session is its root; a parent that the file does not have begins one of its own.
        roots: dict[int, int] = reading.state.setdefault("roots", {})
        root = roots[chat] = chat if parent == ROOT else roots.get(parent, parent)
        return (
            shape_request(
                shape,
                reading,
                request_id=f"chat-{chat}",
                line=line,
                offset_s=reading.clock.offset_s(record.get("timestamp")),
                session=f"chat-{root}",
                route=as_text(record.get("type")),
            ),
        )


BAILIAN = BailianFormat()
