"""WildChat: conversations under a hash, with the times of answers. A question's time is its own or its answer's."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.clock import RecordedTimes
from workloads.formats.conversations import conversation_requests, read_messages
from workloads.formats.fields import as_text, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Request


class WildChatFormat:
    """Reads WildChat as JSON lines. Conversations overlap, so its requests are not in order of time."""

    name = "wildchat"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A conversation under a hash."""
        return any({"conversation_hash", "conversation"} <= record.keys() for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Dates, or numbers where a converter wrote them."""
        return RecordedTimes("timestamp", [time for record in records if (time := record.get("timestamp")) is not None])

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        entries = record.get("conversation")
        messages = read_messages(entries, "conversation", "role", "content")
        language = as_text(record.get("language"))
        return conversation_requests(
            messages,
            reading,
            name=text(record, "conversation_hash"),
            line=line,
            offsets_s=_offsets_s(record, entries, reading),
            model=as_text(record.get("model")),
            tags={"language": language} if language else None,
        )


def _offsets_s(record: Mapping[str, Any], entries: Any, reading: Reading) -> dict[int, float] | None:
    """When each message was sent, never before the one ahead of it; None if the record has no time at all."""
    known = [entry.get("timestamp") for entry in entries]
    offsets_s: dict[int, float] = {}
    latest_s: float | None = None
    for place in range(len(entries)):
        own = next((time for time in known[place:] if time is not None), record.get("timestamp"))
        if own is None:
            return None
        at_s = reading.clock.offset_s(own)
        latest_s = at_s if latest_s is None else max(at_s, latest_s)
        offsets_s[place] = latest_s
    return offsets_s


WILDCHAT = WildChatFormat()
