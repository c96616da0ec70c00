"""vLLM's own log with --enable-log-requests. Prompts are in it only at DEBUG, as rendered by the chat template.

Both ways of writing a request are read: prompt and parameters on one line, and (newer) on two. Lines about anything
else are no records. Times are whole seconds without a year.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from workloads.errors import LineError
from workloads.formats.building import body_request
from workloads.formats.fields import shown
from workloads.formats.format import Reading
from workloads.formats.framing import LINE, Framing
from workloads.request import Request

_QUOTED: Final = r"None|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_DETAILS: Final = re.compile(
    rf"Request (?P<id>\S+) details: prompt: (?P<prompt>{_QUOTED}), prompt_token_ids: (?P<ids>None|\[[^\]]*\])"
)
_RECEIVED: Final = re.compile(
    rf"Received request (?P<id>\S+): (?:prompt: (?P<prompt>{_QUOTED}), )?params: (?P<params>\w+\(.*?\))"
    r"(?:, prompt_token_ids: (?P<ids>None|\[[^\]]*\]))?(?:, prompt_embeds shape: [^,]*)?"
    r", lora_request: (?P<lora>[^,.]*)"
)
_TIME: Final = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d)")
_HALF_A_YEAR_S: Final = 182 * 86400

# What a request's SamplingParams have in common with the body of /v1/completions.
_FIELDS: Final = {
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "bad_words",
    "include_stop_str_in_output",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "logit_bias",
    "structured_outputs",
}


class VLLMLogFormat:
    """Reads vLLM's request log."""

    name = "vllm_log"
    framings: tuple[Framing, ...] = ("text",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A line about a request."""
        return any(_RECEIVED.search(text) or _DETAILS.search(text) for text in map(_text, records))

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """The log's own, see `_offset_s`."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        text = _text(record)
        prompts: dict[str, Any] = reading.state.setdefault("prompts", {})
        if details := _DETAILS.search(text):
            prompts[details["id"]] = _prompt(details)
            return ()
        if "Received request " not in text:
            return ()
        received = _RECEIVED.search(text)
        if received is None:
            raise LineError("it is a request's line that does not end as vLLM writes it; it may have been cut")
        prompt = prompts.pop(received["id"], None) or _prompt(received)
        if prompt is None:
            raise LineError(f'the prompt of request "{received["id"]}" is not in the log; set VLLM_LOGGING_LEVEL=DEBUG')
        if received["lora"] != "None":
            reading.unhonoured["LoRA adapter"] += 1
        # The prompt has its template's control tokens already.
        body = {"prompt": prompt, "add_special_tokens": False, **_parameters(received["params"], reading)}
        offset_s = _offset_s(text, reading)
        return (body_request(body, reading, request_id=received["id"], line=line, offset_s=offset_s),)


def _text(record: Mapping[str, Any]) -> str:
    text = record.get(LINE)
    return text if isinstance(text, str) else ""


def _prompt(found: "re.Match[str]") -> Any:
    """The prompt's text, else its token ids; None if neither was written."""
    for name in ("prompt", "ids"):
        if found[name] not in {None, "None", "''", '""', "[]"}:
            return ast.literal_eval(found[name])
    return None


def _parameters(text: str, reading: Reading) -> dict[str, Any]:
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        raise LineError(f"the parameters {shown(text)} cannot be read; the line may have been cut") from None
    body: dict[str, Any] = {}
    for name, value in _keywords(call, reading).items():
        if value is None or value == []:
            continue
        if name in _FIELDS:
            body[name] = value
        elif value is not False:
            reading.unhonoured[f'sampling parameter "{name}"'] += 1
    return body


def _keywords(call: ast.expr, reading: Reading) -> dict[str, Any]:
    """The arguments of a written call: literals, or calls of that kind; nothing is evaluated."""
    found: dict[str, Any] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        name = keyword.arg or ""
        if isinstance(keyword.value, ast.Call):
            found[name] = {key: value for key, value in _keywords(keyword.value, reading).items() if value is not None}
            continue
        try:
            found[name] = ast.literal_eval(keyword.value)
        except ValueError:
            reading.unhonoured[f'sampling parameter "{name}"'] += 1
    return found


def _offset_s(text: str, reading: Reading) -> float | None:
    """Seconds since the first request; None if the line has no time. A new year makes the date jump back."""
    found = _TIME.search(text)
    if found is None:
        return None
    reading.note("times read from the log: whole seconds, without a year")
    # A leap year, so that any date is one.
    now_s = datetime.strptime(f"2000-{found[1]}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    first_s = reading.state.setdefault("first_s", now_s)
    return float(now_s - first_s + (365 * 86400 if now_s - first_s < -_HALF_A_YEAR_S else 0))


VLLM_LOG = VLLMLogFormat()
