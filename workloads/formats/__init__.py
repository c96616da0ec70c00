"""The formats that recorded traffic comes in: one module each, behind one protocol.

A format recognises its records by content and turns one record into requests. Reading the file and checking what must
hold between requests is `workloads.read`.
"""

from workloads.formats.aiperf_mooncake_trace import AIPERF_MOONCAKE_TRACE
from workloads.formats.aiperf_multi_turn import AIPERF_MULTI_TURN
from workloads.formats.aiperf_single_turn import AIPERF_SINGLE_TURN
from workloads.formats.azure_llm import AZURE_LLM
from workloads.formats.bailian import BAILIAN
from workloads.formats.burstgpt import BURSTGPT
from workloads.formats.dynamo import DYNAMO
from workloads.formats.format import Format, Reading
from workloads.formats.framing import Framing
from workloads.formats.guidellm_replay import GUIDELLM_REPLAY
from workloads.formats.langfuse import LANGFUSE
from workloads.formats.litellm_payload import LITELLM_PAYLOAD
from workloads.formats.litellm_spend_logs import LITELLM_SPEND_LOGS
from workloads.formats.lmsys import LMSYS
from workloads.formats.mooncake import MOONCAKE
from workloads.formats.native import NATIVE
from workloads.formats.openai_batch import OPENAI_BATCH
from workloads.formats.openinference import OPENINFERENCE
from workloads.formats.otel_genai import OTEL_GENAI
from workloads.formats.plugins import Formats
from workloads.formats.raw_payload import RAW_PAYLOAD
from workloads.formats.sharegpt import SHAREGPT
from workloads.formats.vllm_custom import VLLM_CUSTOM
from workloads.formats.vllm_log import VLLM_LOG
from workloads.formats.wildchat import WILDCHAT

_IN_ORDER: tuple[Format, ...] = (
    NATIVE,
    OPENAI_BATCH,
    LITELLM_SPEND_LOGS,
    LITELLM_PAYLOAD,
    OTEL_GENAI,
    OPENINFERENCE,
    LANGFUSE,
    VLLM_LOG,
    VLLM_CUSTOM,
    MOONCAKE,
    BAILIAN,
    GUIDELLM_REPLAY,
    AIPERF_SINGLE_TURN,
    AIPERF_MULTI_TURN,
    AIPERF_MOONCAKE_TRACE,
    DYNAMO,
    BURSTGPT,
    AZURE_LLM,
    SHAREGPT,
    LMSYS,
    WILDCHAT,
    RAW_PAYLOAD,
)

FORMATS = Formats(_IN_ORDER)
"""Known formats by name, in the order in which they are tried; those of installed packages come last."""

__all__ = ["FORMATS", "NATIVE", "OPENAI_BATCH", "Format", "Framing", "Reading"]
