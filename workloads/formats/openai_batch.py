"""OpenAI's batch input (also that of `vllm run-batch`): custom_id, method, url and body. It has no arrival times.

Fields beside these four are left alone, because providers add their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Request, check_body, endpoint_of


class OpenAIBatchFormat:
    """Reads batch input records."""

    name = "openai_batch"
    framing: Framing = "json"
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A custom_id with a body or url beside it."""
        return any("custom_id" in record and ("body" in record or "url" in record) for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """A batch has none."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        del reading
        custom_id = _text(record, "custom_id")
        method = record.get("method", "POST")
        if method != "POST":
            raise LineError(f'"method" is {method!r}; it must be "POST"')
        body = record.get("body")
        if not isinstance(body, dict):
            raise LineError('"body" must be an object: the request body')
        endpoint = endpoint_of(body, _text(record, "url"))
        check_body(body)
        return (Request(id=custom_id, offset_s=None, endpoint=endpoint, body=body, line=line),)


def _text(record: Mapping[str, Any], field: str) -> str:
    if field not in record:
        raise LineError(f'the required field "{field}" is missing')
    value = record[field]
    if not isinstance(value, str) or not value:
        raise LineError(f'"{field}" is {value!r}; it must be a text and not empty')
    return value


OPENAI_BATCH = OpenAIBatchFormat()
