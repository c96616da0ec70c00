"""The data of `vllm bench serve --dataset-name custom`: a prompt a line, sent as a user's message as that tool does."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import body_request
from workloads.formats.fields import count, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Request

_FIELDS = {"prompt", "output_tokens"}


class VLLMCustomFormat:
    """Reads custom data of vLLM's benchmark."""

    name = "vllm_custom"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A prompt and at most the number of output tokens."""
        return any("prompt" in record and record.keys() <= _FIELDS for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """It has none."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        body: dict[str, Any] = {"messages": [{"role": "user", "content": text(record, "prompt")}]}
        if record.get("output_tokens") is not None:
            body["max_tokens"] = count(record, "output_tokens", least=1)
        for name in record.keys() - _FIELDS:
            reading.unhonoured[f'field "{name}"'] += 1
        return (body_request(body, reading, request_id=f"line-{line}", line=line),)


VLLM_CUSTOM = VLLMCustomFormat()
