"""What LiteLLM's two logs have in common: kinds of calls, times, and what the server answered."""

from collections.abc import Mapping
from typing import Any, Final

from workloads.errors import LineError
from workloads.formats.clock import Clock
from workloads.formats.fields import as_tokens, structure
from workloads.formats.format import Reading
from workloads.request import Recorded

COMPLETION_CALLS: Final = {"completion", "acompletion"}
TEXT_CALLS: Final = {"text_completion", "atext_completion"}
STORE_PROMPTS: Final = "LiteLLM stores prompts only with store_prompts_in_spend_logs: true"


def is_replayed(record: Mapping[str, Any], reading: Reading) -> bool:
    """Whether a log entry is a generation that reached a model; the others are counted."""
    kind = record.get("call_type")
    if kind not in COMPLETION_CALLS | TEXT_CALLS:
        reading.unhonoured[f'call of type "{kind}"'] += 1
        return False
    if str(record.get("cache_hit")).lower() == "true":
        reading.unhonoured["answer from LiteLLM's own cache"] += 1
        return False
    return True


def recorded(record: Mapping[str, Any], clock: Clock) -> Recorded:
    """What the server answered."""
    times = {name: _ns(record.get(name), clock) for name in ("startTime", "completionStartTime", "endTime")}
    response = structure(record.get("response"), "response")
    choices = response.get("choices") if isinstance(response, dict) else None
    finish = choices[0].get("finish_reason") if isinstance(choices, list) and choices else None
    return Recorded(
        prompt_tokens=as_tokens(record.get("prompt_tokens")),
        completion_tokens=as_tokens(record.get("completion_tokens")),
        ttft_s=_between_s(times["startTime"], times["completionStartTime"]),
        duration_s=_between_s(times["startTime"], times["endTime"]),
        finish_reason=finish if isinstance(finish, str) else None,
    )


def _ns(value: Any, clock: Clock) -> int | None:
    if value is None or value == "":
        return None
    try:
        return clock.ns(value)
    except LineError:
        # A time beside the arrival only tells what was measured; without it the request is as good.
        return None


def _between_s(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None or end_ns < start_ns else (end_ns - start_ns) / 1e9
