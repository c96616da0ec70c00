"""From what a format found in a record to a `Request`: bodies, shapes, and what of them a replay cannot honour."""

from collections.abc import Mapping
from typing import Any

from workloads.errors import LineError
from workloads.formats.format import Reading
from workloads.request import COMPLETIONS_ENDPOINT, Recorded, Request, check_body, endpoint_of
from workloads.shape import Shape, ShapeBody

# Sizes that caches and traces use; the one that fits all first records is taken when a format documents none.
BLOCK_SIZES = (16, 32, 64, 128, 256, 512, 1024)


def body_request(
    body: Mapping[str, Any],
    reading: Reading,
    *,
    request_id: str,
    line: int,
    offset_s: float | None = None,
    session: str | None = None,
    route: str | None = None,
    tags: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
    endpoint: str | None = None,
) -> Request:
    """A request with text.

    Raises:
        LineError: if the body is none that can be sent.
    """
    found = endpoint_of(body, endpoint)
    check_body(body)
    note_unhonoured(body, reading)
    reading.state.setdefault("text", True)
    return Request(request_id, offset_s, found, body, route, session, tags or {}, recorded, line)


def shape_request(
    shape: Shape,
    reading: Reading,
    *,
    request_id: str,
    line: int,
    offset_s: float | None = None,
    session: str | None = None,
    route: str | None = None,
    tags: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
) -> Request:
    """A request of which only the shape is known.

    Raises:
        LineError: if it has more blocks than its prompt can hold.
    """
    if shape.hash_ids:
        blocks = -(-shape.input_length // shape.block_tokens)
        if len(shape.hash_ids) > blocks:
            raise LineError(
                f'"hash_ids" has {len(shape.hash_ids)} blocks, but {shape.input_length} tokens are {blocks} blocks of '
                f"{shape.block_tokens}; correct one of them"
            )
    body = ShapeBody(shape, request_id, reading.vocab_size)
    recorded = recorded or Recorded(prompt_tokens=shape.input_length, completion_tokens=shape.output_length)
    return Request(request_id, offset_s, COMPLETIONS_ENDPOINT, body, route, session, tags or {}, recorded, line, shape)


def textless_request(
    reading: Reading,
    remedy: str,
    *,
    request_id: str,
    line: int,
    recorded: Recorded,
    offset_s: float | None,
    session: str | None,
) -> Request:
    """A request whose text was not recorded: its shape, if the whole file has no text and its lengths are known.

    Raises:
        LineError: otherwise, with the remedy.
    """
    known = recorded.prompt_tokens and recorded.completion_tokens
    if not known or reading.state.get("text"):
        raise LineError(f"its prompt was not recorded; {remedy}")
    reading.state["text"] = False
    reading.note(f"prompts were not recorded, so only lengths and times are replayed; {remedy}")
    shape = Shape(recorded.prompt_tokens or 1, recorded.completion_tokens or 1)
    return shape_request(
        shape, reading, request_id=request_id, line=line, offset_s=offset_s, session=session, recorded=recorded
    )


def note_unhonoured(body: Mapping[str, Any], reading: Reading) -> None:
    """Count what of a body the served model may not be able to honour, by name."""
    counts = reading.unhonoured
    model = body.get("model")
    if model:
        counts[f'model name "{model}"'] += 1
    for message in body.get("messages") or ():
        content = message.get("content")
        if type(content) is list:
            for part in content:
                kind = part.get("type") if isinstance(part, dict) else "text"
                if kind != "text":
                    counts[f'content of type "{kind}"'] += 1
    for tool in body.get("tools") or ():
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind != "function":
            counts[f'tool of type "{kind}"'] += 1


def block_size(shapes: list[tuple[int, int]], documented: int) -> int:
    """Tokens in a block, from (input length, number of ids) of the first records: the documented size if it fits.

    It fits if every prompt has as many ids as blocks, the last of which may be partly filled or left out.
    """
    for size in (documented, *BLOCK_SIZES):
        if all(ids in {length // size, -(-length // size)} for length, ids in shapes):
            return size
    return documented
