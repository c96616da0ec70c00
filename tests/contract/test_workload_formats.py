"""Every workload format keeps the contract."""

from typing import Any, ClassVar

from workloads.formats import FORMATS, NATIVE, OPENAI_BATCH
from workloads.testing import FormatContract

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
NATIVE_RECORD = {"timestamp_s": 0.0, "route": "code", "body": CHAT}
BATCH_RECORD = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
MOONCAKE_RECORD = {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46]}
RAW_BODY: dict[str, Any] = {"messages": []}


class TestNativeFormat(FormatContract):
    """The native format."""

    format = NATIVE
    good = (
        {"id": "a", "timestamp_s": 0.0, "endpoint": "/v1/chat/completions", "route": "code", "body": CHAT},
        {"timestamp_s": 1, "session": "s", "tags": {"k": "v"}, "body": {"prompt": "x"}, "recorded": {"status": 200}},
    )
    bad: ClassVar = {
        'unknown field "route_name"': {"route_name": "x", "body": CHAT},
        '"body" is missing': {"id": "x"},
        "neither messages (chat) nor prompt": {"body": {"model": "m"}},
        '"timestamp_s" is -0.5': {"timestamp_s": -0.5, "body": CHAT},
        '"max_tokens" is 0': {"body": {**CHAT, "max_tokens": 0}},
    }
    foreign = (BATCH_RECORD, MOONCAKE_RECORD, RAW_BODY)


class TestOpenAIBatchFormat(FormatContract):
    """OpenAI batch input."""

    format = OPENAI_BATCH
    good = (
        BATCH_RECORD,
        {"custom_id": "b", "url": "/v1/completions", "body": {"prompt": "x"}, "provider_note": 1},
    )
    bad: ClassVar = {
        '"custom_id" is missing': {"url": "/v1/completions", "body": CHAT},
        "\"custom_id\" is ''": {**BATCH_RECORD, "custom_id": ""},
        "\"method\" is 'GET'": {**BATCH_RECORD, "method": "GET"},
        'endpoint is "/v1/embeddings"': {**BATCH_RECORD, "url": "/v1/embeddings"},
        '"body" must be an object': {**BATCH_RECORD, "body": "x"},
        "which /v1/completions does not take": {**BATCH_RECORD, "url": "/v1/completions"},
        '"max_tokens" is -3': {**BATCH_RECORD, "body": {**CHAT, "max_tokens": -3}},
    }
    foreign = (NATIVE_RECORD, MOONCAKE_RECORD, RAW_BODY)


def test_every_known_format_has_a_contract_test() -> None:
    tested = {contract.format.name for contract in FormatContract.__subclasses__()}
    assert set(FORMATS) == tested
