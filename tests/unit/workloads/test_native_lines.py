"""The fast way to read native lines and the model that defines the format never disagree."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import Recorded, Request
from workloads.errors import LineError
from workloads.formats import NATIVE, Reading
from workloads.formats.framing import parse_line
from workloads.formats.native_lines import plain_request
from workloads.request import trusted_request

GOOD: dict[str, Any] = {
    "id": "a",
    "timestamp_s": 1.5,
    "endpoint": "/v1/chat/completions",
    "route": "r",
    "session": "s",
    "tags": {"k": "v"},
    "body": {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "max_completion_tokens": 6,
        "temperature": 0.5,
        "tools": [{"type": "function"}],
        "prompt": "x",
    },
    "recorded": {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "cached_tokens": 0,
        "ttft_s": 0.1,
        "duration_s": 1,
        "finish_reason": "stop",
        "status": 200,
    },
}
ODD = st.sampled_from(
    [None, "", "x", 0, 1, -1, 1.5, -0.5, 1e300, True, [], {}, ["x"], {"k": 1}, [{"role": 1}], [{"role": "user"}]]
)
PATHS = [
    (*path, name)
    for path, part in [((), GOOD), (("body",), GOOD["body"]), (("recorded",), GOOD["recorded"]), (("tags",), {"k": ""})]
    for name in [*part, "unknown"]
]


def slowly(raw: bytes) -> Request | None:
    """By the model; None where it refuses."""
    parsed = parse_line(3, raw)
    assert parsed is not None
    _, record = parsed
    assert not isinstance(record, LineError)
    try:
        (request,) = NATIVE.requests(record, 3, Reading())
    except LineError:
        return None
    return request


def changed(changes: dict[tuple[str, ...], Any], dropped: set[tuple[str, ...]]) -> bytes:
    record = orjson.loads(orjson.dumps(GOOD))
    for path, value in changes.items():
        at = record
        for step in path[:-1]:
            at = at.setdefault(step, {}) if isinstance(at.get(step, {}), dict) else {}
        at[path[-1]] = value
    for path in dropped:
        at = record
        for step in path[:-1]:
            at = at.get(step) if isinstance(at.get(step), dict) else {}
        at.pop(path[-1], None)
    return orjson.dumps(record)


@given(
    st.dictionaries(st.sampled_from(PATHS), ODD, max_size=2),
    st.sets(st.sampled_from(PATHS), max_size=4),
    st.booleans(),
)
def test_what_is_read_fast_is_what_the_model_reads(
    changes: dict[tuple[str, ...], Any], dropped: set[tuple[str, ...]], is_chat: bool
) -> None:
    # Without prompt and tools a body is a plain chat, which is what the fast way takes.
    raw = changed(changes, dropped | ({("body", "prompt"), ("body", "tools")} if is_chat else set()))
    fast = plain_request(raw, 3, Reading())
    if fast is not None:
        assert fast == slowly(raw)


def test_a_plain_chat_is_read_fast_and_counts_its_model() -> None:
    raw = changed({}, {("body", "prompt"), ("body", "tools")})
    reading = Reading()
    request = plain_request(raw, 3, reading)
    assert request == slowly(raw)
    assert request is not None
    assert hash(request.recorded) == hash(Recorded(**GOOD["recorded"]))
    assert dict(reading.unhonoured) == {'model name "m"': 1}


@pytest.mark.parametrize("raw", [b"", b"\n", b"[1]", b"{", b'{"body": {"messages": "\xff"}}', b"7"])
def test_what_is_no_record_is_left_to_the_slow_way(raw: bytes) -> None:
    assert plain_request(raw, 1, Reading()) is None


def test_a_request_made_fast_is_a_request() -> None:
    made = Request("a", 1.0, "/v1/completions", {"prompt": "x"}, "r", "s", {"k": "v"}, None, 7)
    fast = trusted_request("a", 1.0, "/v1/completions", {"prompt": "x"}, "r", "s", {"k": "v"}, None, 7, None)
    assert fast == made
    assert type(fast) is Request
    with pytest.raises(AttributeError):
        fast.id = "b"  # type: ignore[misc]
