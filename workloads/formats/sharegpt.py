"""ShareGPT: conversations of human and gpt, in one JSON array or one a line. No times, models or sampling."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.conversations import conversation_requests, read_messages
from workloads.formats.fields import as_text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Request


class ShareGPTFormat:
    """Reads ShareGPT."""

    name = "sharegpt"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A list of conversations' messages under its own name."""
        return any(isinstance(record.get("conversations"), list) for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """It has none."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        messages = read_messages(record.get("conversations"), "conversations", "from", "value")
        name = as_text(record.get("id")) or "conversation"
        return conversation_requests(messages, reading, name=name, line=line)


SHAREGPT = ShareGPTFormat()
