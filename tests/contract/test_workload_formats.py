"""Every workload format keeps the contract, on a small file of its own with the field names of the real thing."""

from pathlib import Path

import pytest

from workloads import read_workload
from workloads.formats import FORMATS
from workloads.testing import FormatContract

FILES = Path(__file__).parents[1] / "data" / "formats"
SAMPLES = {
    name: next(path for path in sorted(FILES.glob(f"{name}.*")) if ".broken." not in path.name) for name in FORMATS
}


class OwnContract(FormatContract):
    """Our formats: named by their test class, samples in one folder."""

    def __init_subclass__(cls, name: str, **_: object) -> None:
        cls.format = FORMATS[name]
        cls.sample = SAMPLES[name]
        cls.broken = cls.sample.with_name(f"{name}.broken{cls.sample.suffix}")
        cls.foreign = [path for other, path in SAMPLES.items() if other != name]


class TestNative(OwnContract, name="native"):
    """Of `workloads/formats/native.py`."""

    broken_line = 2
    reason = ('unknown field "rout"', "known fields are id, timestamp_s,")
    text_bearing = False


class TestOpenAIBatch(OwnContract, name="openai_batch"):
    """Of `workloads/formats/openai_batch.py`."""

    broken_line = 2
    reason = ("\"method\" is 'GET'", 'it must be "POST"')


class TestLiteLLMSpendLogs(OwnContract, name="litellm_spend_logs"):
    """Of `workloads/formats/litellm_spend_logs.py`."""

    broken_line = 1
    reason = ("its prompt was not recorded", "store_prompts_in_spend_logs: true")


class TestLiteLLMPayload(OwnContract, name="litellm_payload"):
    """Of `workloads/formats/litellm_payload.py`."""

    broken_line = 3
    reason = ("\"startTime\" is 'soon'", "must be a number of seconds")


class TestOTelGenAI(OwnContract, name="otel_genai"):
    """Of `workloads/formats/otel_genai.py`."""

    broken_line = 2
    reason = ('"gen_ai.input.messages[0].role" is None', "must be a text")


class TestOpenInference(OwnContract, name="openinference"):
    """Of `workloads/formats/openinference.py`."""

    broken_line = 3
    reason = ('"llm.invocation_parameters" is a text that is not valid JSON',)


class TestLangfuse(OwnContract, name="langfuse"):
    """Of `workloads/formats/langfuse.py`."""

    broken_line = 3
    reason = ("\"input\" is {'question'", "must be a text, a list of messages or an object with messages")


class TestVLLMLog(OwnContract, name="vllm_log"):
    """Of `workloads/formats/vllm_log.py`."""

    broken_line = 6
    reason = ('the prompt of request "cmpl-3" is not in the log', "VLLM_LOGGING_LEVEL=DEBUG")


class TestVLLMCustom(OwnContract, name="vllm_custom"):
    """Of `workloads/formats/vllm_custom.py`."""

    broken_line = 2
    reason = ('"output_tokens" is 0', "whole number of at least 1")


class TestMooncake(OwnContract, name="mooncake"):
    """Of `workloads/formats/mooncake.py`."""

    broken_line = 2
    reason = ('"input_length" is 0', "whole number of at least 1")
    text_bearing = False


class TestBailian(OwnContract, name="bailian"):
    """Of `workloads/formats/bailian.py`."""

    broken_line = 2
    reason = ("\"parent_chat_id\" is 'root'", "whole number of at least -1")
    text_bearing = False


class TestBurstGPT(OwnContract, name="burstgpt"):
    """Of `workloads/formats/burstgpt.py`."""

    broken_line = 4
    reason = ("\"Request tokens\" is 'many'", "whole number of at least 0")
    text_bearing = False


class TestAzureLLM(OwnContract, name="azure_llm"):
    """Of `workloads/formats/azure_llm.py`."""

    broken_line = 3
    reason = ("it has 2 values, the header has 3 names", "correct the line")
    text_bearing = False


class TestAIPerfSingleTurn(OwnContract, name="aiperf_single_turn"):
    """Of `workloads/formats/aiperf_single_turn.py`."""

    broken_line = 3
    reason = ('"text" is 7', "must be a text")


class TestAIPerfMultiTurn(OwnContract, name="aiperf_multi_turn"):
    """Of `workloads/formats/aiperf_multi_turn.py`."""

    broken_line = 2
    reason = ('"turns" is []', "a list of at least one turn")


class TestAIPerfMooncakeTrace(OwnContract, name="aiperf_mooncake_trace"):
    """Of `workloads/formats/aiperf_mooncake_trace.py`."""

    broken_line = 2
    reason = ("it has text_input and messages", "exactly one of input_length, text_input, messages, payload")
    text_bearing = False


class TestRawPayload(OwnContract, name="raw_payload"):
    """Of `workloads/formats/raw_payload.py`."""

    broken_line = 2
    reason = ('"max_tokens" is -8', "an integer of at least 1")


class TestDynamo(OwnContract, name="dynamo"):
    """Of `workloads/formats/dynamo.py`."""

    broken_line = 1
    reason = ('"hash_ids" has 4 blocks, but 130 tokens are 3 blocks of 64', "correct one of them")
    text_bearing = False


class TestGuideLLMReplay(OwnContract, name="guidellm_replay"):
    """Of `workloads/formats/guidellm_replay.py`."""

    broken_line = 2
    reason = ('"output_length" is 1.5', "whole number of at least 1")
    text_bearing = False


class TestShareGPT(OwnContract, name="sharegpt"):
    """Of `workloads/formats/sharegpt.py`."""

    broken_line = 23
    reason = ("\"conversations[0].from\" is 'person'", "must be one of human, user, gpt")


class TestLMSYS(OwnContract, name="lmsys"):
    """Of `workloads/formats/lmsys.py`."""

    broken_line = 2
    reason = ("the conversation has no question", "must have a message by a user")


class TestWildChat(OwnContract, name="wildchat"):
    """Of `workloads/formats/wildchat.py`."""

    broken_line = 2
    reason = ('"conversation[0].content" is None', "must be a text")


def test_every_known_format_has_a_contract_test() -> None:
    assert set(FORMATS) == {contract.format.name for contract in OwnContract.__subclasses__()}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_told_by_content(name: str) -> None:
    assert read_workload(SAMPLES[name]).format == name
