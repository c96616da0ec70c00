"""OpenAI's batch input (also that of `vllm run-batch`): custom_id, method, url and body. It has no arrival times.

The batch's output, a second file, adds what the server answered. Fields beside these are left alone, because providers
add their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats.building import body_request
from workloads.formats.fields import as_text, as_tokens, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing, Parsed
from workloads.request import Recorded, Request


class OpenAIBatchFormat:
    """Reads batch input records."""

    name = "openai_batch"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A custom_id with a body, url or response beside it."""
        return any("custom_id" in record and record.keys() & {"body", "url", "response"} for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """A batch has none."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        custom_id = text(record, "custom_id")
        if "response" in record and "body" not in record:
            raise LineError("it is a batch's output; read the batch's input, and this file with --responses")
        method = record.get("method", "POST")
        if method != "POST":
            raise LineError(f'"method" is {method!r}; it must be "POST"')
        body = record.get("body")
        if not isinstance(body, dict):
            raise LineError('"body" must be an object: the request body')
        answered = reading.answers.get(custom_id)
        if reading.answers and answered is None:
            reading.unhonoured["request without an answer in the output"] += 1
        return (
            body_request(
                body, reading, request_id=custom_id, line=line, endpoint=text(record, "url"), recorded=answered
            ),
        )


def read_answers(parsed: Iterable[Parsed]) -> dict[str, Recorded]:
    """What the server answered, by custom_id, from a batch's output or error file.

    Raises:
        LineError: if a record is no batch output; the message says which.
    """
    answers = {}
    for line, record in parsed:
        if isinstance(record, LineError):
            raise LineError(f"line {line}: {record}")
        custom_id, response = as_text(record.get("custom_id")), record.get("response")
        if custom_id is None or not ("response" in record or "error" in record):
            raise LineError(f'line {line}: it is no batch output, which has "custom_id" and "response"')
        answers[custom_id] = _answer(response if isinstance(response, dict) else {})
    return answers


def _answer(response: Mapping[str, Any]) -> Recorded:
    body = response.get("body")
    body = body if isinstance(body, dict) else {}
    usage = body.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    choices = body.get("choices")
    status = response.get("status_code")
    return Recorded(
        prompt_tokens=as_tokens(usage.get("prompt_tokens")),
        completion_tokens=as_tokens(usage.get("completion_tokens")),
        cached_tokens=as_tokens(details.get("cached_tokens")),
        finish_reason=as_text(choices[0].get("finish_reason")) if isinstance(choices, list) and choices else None,
        status=status if type(status) is int else None,
    )


OPENAI_BATCH = OpenAIBatchFormat()
