"""Messages and tools of OpenTelemetry's GenAI conventions as OpenAI spells them.

A message there is a role and parts: text, tool calls, their answers, media. What OpenAI's chat cannot take is counted.
"""

from typing import Any

import orjson

from workloads.errors import LineError
from workloads.formats.fields import shown
from workloads.formats.format import Reading


def openai_messages(raw: Any, system: Any, reading: Reading) -> list[dict[str, Any]]:
    """The messages of a request, its system instructions first.

    Raises:
        LineError: if they are not of the form that the conventions say.
    """
    if not isinstance(raw, list):
        raise LineError(f'"gen_ai.input.messages" is {shown(raw)}; it must be a list of messages')
    messages: list[dict[str, Any]] = []
    if system:
        parts = system if isinstance(system, list) else [{"type": "text", "content": system}]
        messages += _from_parts("system", parts, reading)
    for place, message in enumerate(raw):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            raise LineError(f'"gen_ai.input.messages[{place}].role" is {shown(role)}; it must be a text')
        if "parts" in message:
            messages += _from_parts(role, message["parts"] or [], reading)
        else:
            messages.append(message)
    return messages


def openai_tools(raw: Any, reading: Reading) -> list[dict[str, Any]]:
    """Tools that functions describe; others are counted and left out.

    Raises:
        LineError: if it is no list.
    """
    if not isinstance(raw, list):
        raise LineError(f'"gen_ai.tool.definitions" is {shown(raw)}; it must be a list of tools')
    tools = []
    for tool in raw:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind != "function":
            reading.unhonoured[f'tool of type "{kind}"'] += 1
        elif "function" in tool:
            tools.append(tool)
        else:
            tools.append({"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}})
    return tools


def _from_parts(role: str, parts: Any, reading: Reading) -> list[dict[str, Any]]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("content"), str):
            texts.append(part["content"])
        elif kind == "tool_call":
            function = {"name": part.get("name"), "arguments": _as_json(part.get("arguments"))}
            calls.append({"id": part.get("id"), "type": "function", "function": function})
        elif kind == "tool_call_response":
            answer = part.get("response", part.get("result"))
            answers.append({"role": "tool", "tool_call_id": part.get("id"), "content": _as_json(answer)})
        else:
            reading.unhonoured[f'content of type "{kind}"'] += 1
    if answers and not (texts or calls):
        return answers
    content: Any = "\n".join(texts) if texts else None
    message = {"role": role, "content": content if calls or content is not None else ""}
    return [{**message, "tool_calls": calls} if calls else message, *answers]


def _as_json(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
