"""One turn as AIPerf's single_turn and multi_turn spell it: a text or several, media, a time, an output length."""

from collections.abc import Mapping
from typing import Any

from workloads.errors import LineError
from workloads.formats.fields import count, shown
from workloads.formats.format import Reading

TEXT_FIELDS = ("text", "texts")
MEDIA_FIELDS = ("image", "images", "audio", "audios", "video", "videos")


def turn_message(turn: Mapping[str, Any], reading: Reading, where: str = "") -> dict[str, Any]:
    """The message of a turn; media are counted and left out.

    Raises:
        LineError: if it has no text.
    """
    for name in MEDIA_FIELDS:
        if turn.get(name):
            reading.unhonoured[f"{name.rstrip('s')} of a turn"] += 1
    texts = turn["text"] if "text" in turn else turn.get("texts")
    if isinstance(texts, str) and texts:
        content: Any = texts
    elif isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts):
        content = texts[0] if len(texts) == 1 else [{"type": "text", "text": each} for each in texts]
    else:
        raise LineError(f'"{where}text" is {shown(texts)}; it must be a text, or "texts" a list of texts')
    role = turn.get("role", "user")
    if not isinstance(role, str):
        raise LineError(f'"{where}role" is {shown(role)}; it must be a text such as user')
    return {"role": role, "content": content}


def turn_fields(turn: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The fields of the body beside its messages.

    Raises:
        LineError: if one is wrong.
    """
    fields: dict[str, Any] = {}
    if turn.get("model"):
        fields["model"] = turn["model"]
    if turn.get("output_length") is not None:
        fields["max_tokens"] = count(turn, "output_length", least=1)
    if turn.get("tools"):
        fields["tools"] = turn["tools"]
    extra = turn.get("extra")
    if isinstance(extra, dict):
        fields |= extra
    elif extra is not None:
        raise LineError(f'"extra" is {shown(extra)}; it must be an object of fields for the body')
    if turn.get("delay") is not None:
        reading.unhonoured["delay before a turn"] += 1
    return fields
