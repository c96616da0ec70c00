"""LMSYS-Chat-1M: conversations with the model that answered and the language. No times or sampling."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.conversations import conversation_requests, read_messages
from workloads.formats.fields import as_text, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Request


class LMSYSFormat:
    """Reads LMSYS-Chat-1M as JSON lines."""

    name = "lmsys"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A conversation under an id."""
        return any({"conversation_id", "conversation"} <= record.keys() for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """It has none."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        messages = read_messages(record.get("conversation"), "conversation", "role", "content")
        language = as_text(record.get("language"))
        return conversation_requests(
            messages,
            reading,
            name=text(record, "conversation_id"),
            line=line,
            model=as_text(record.get("model")),
            tags={"language": language} if language else None,
        )


LMSYS = LMSYSFormat()
