"""AIPerf's multi_turn: a session a line, with its turns. Answers are not in it, so a turn's history has none."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats.aiperf_turns import turn_fields, turn_message
from workloads.formats.building import body_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text, shown
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Request


class AIPerfMultiTurnFormat:
    """Reads sessions of turns. Sessions overlap, so their requests are not in order of time."""

    name = "aiperf_multi_turn"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A list of turns that are objects."""
        return any(_turns(record) for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Documented as milliseconds."""
        values = [turn["timestamp"] for record in records for turn in _turns(record) if "timestamp" in turn]
        return RecordedTimes("timestamp", values, "ms")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        found = _turns(record)
        if not found:
            raise LineError(f'"turns" is {shown(record.get("turns"))}; it must be a list of at least one turn')
        session = as_text(record.get("session_id")) or f"line-{line}"
        messages: list[dict[str, Any]] = []
        requests = []
        for number, turn in enumerate(found, start=1):
            messages.append(turn_message(turn, reading, f"turns[{number - 1}]."))
            time = turn.get("timestamp")
            requests.append(
                body_request(
                    {"messages": list(messages), **turn_fields(turn, reading)},
                    reading,
                    request_id=f"{session}/{number}",
                    line=line,
                    offset_s=None if time is None else reading.clock.offset_s(time),
                    session=session,
                )
            )
        if len(requests) > 1:
            reading.note("turns carry the questions before them, not the answers, which the format does not have")
        return tuple(requests)


def _turns(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    turns = record.get("turns")
    if isinstance(turns, list) and turns and all(isinstance(turn, dict) for turn in turns):
        return turns
    return []


AIPERF_MULTI_TURN = AIPerfMultiTurnFormat()
