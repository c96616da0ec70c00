"""What an inspection says of traffic, and that it says nothing of its text."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workloads import (
    Inspection,
    ProfileError,
    Recorded,
    RejectedLine,
    Request,
    Workload,
    inspect_traffic,
    read_workload,
    stream_requests,
)
from workloads.columns import Columns
from workloads.quantiles import quantiles

SAMPLE = Path(__file__).parents[3] / "workloads" / "samples" / "api_traffic.jsonl"


def chat(line: int, offset_s: float | None = None, recorded: Recorded | None = None, **more: Any) -> Request:
    fields = {name: more.pop(name) for name in ("session", "route", "tags") if name in more}
    body = {"messages": [{"role": "user", "content": "hunter2" * line}], **more}
    return Request(f"r{line}", offset_s, "/v1/chat/completions", body, recorded=recorded, line=line, **fields)


def inspect(*requests: Request, by: str = "route", **more: Any) -> Inspection:
    workload = Workload("w", Path("w.jsonl"), "native", "sha256:0", requests, **more)
    return inspect_traffic(requests, workload, by)


def test_counts_and_sampling() -> None:
    whole = inspect(
        chat(1, temperature=0.8, model="b", n=2, top_p=0.9),
        chat(2, temperature=0.8, model="a", tools=[{}]),
        chat(3, response_format={"type": "json_object"}, model="a"),
        chat(4, response_format={"type": "text"}, seed=0),
        Request("r5", None, "/v1/completions", {"prompt": "abcd", "temperature": 0}, line=5),
    ).whole
    mix = whole.sampling
    assert mix.temperatures == ((0.8, 2), (None, 2), (0, 1))
    assert mix.settings == {"top_p": 1, "seed": 1}
    assert (mix.structured_output, mix.tools, mix.several_choices, mix.media) == (1, 1, 1, 0)
    assert whole.models == {"a": 2, "": 2, "b": 1}
    assert (whole.requests, whole.conversations.without_session) == (5, 5)
    assert (whole.output_tokens, whole.max_tokens, whole.arrivals, whole.concurrency) == (None, None, None, None)


def test_quantiles_are_values_that_occur() -> None:
    columns = Columns()
    for limit in range(1, 101):
        columns.add(chat(limit, max_tokens=limit))
    found = quantiles(columns.numbers().max_tokens)
    assert found is not None
    assert (found.count, found.mean, found.minimum, found.p50, found.p90, found.p99, found.maximum) == (
        *(100, 50.5, 1, 50),
        *(90, 99, 100),
    )


def test_recorded_tokens_are_taken_where_they_are_and_estimates_are_counted() -> None:
    whole = inspect(chat(1, recorded=Recorded(prompt_tokens=10, completion_tokens=3)), chat(100)).whole
    assert whole.prompt_tokens is not None
    assert whole.prompt_tokens.minimum == 10
    assert whole.prompt_tokens.maximum == pytest.approx(175, abs=3)
    assert whole.prompt_tokens_estimated == 1
    assert whole.output_tokens is not None
    assert (whole.output_tokens.count, whole.output_tokens.mean) == (1, 3)


def test_profiles_of_a_stream_are_those_of_the_workload_and_their_parts_add_up() -> None:
    for by in ("route", "auto", "tag:app", "none"):
        stream = stream_requests(SAMPLE)
        found = inspect_traffic(stream, stream, by)
        workload = read_workload(SAMPLE)
        assert found == inspect_traffic(workload.requests, workload, by)
        assert sum(traffic.requests for traffic in found.profiles.values()) == found.whole.requests == 240
        hits = [
            sum(traffic.prefix_sharing.hit_rates[0].hit_rate * tokens(traffic) for traffic in part)
            for part in (found.profiles.values(), [found.whole])
        ]
        assert hits[0] == pytest.approx(hits[1])


def tokens(traffic: Any) -> float:
    return float(traffic.prompt_tokens.mean * traffic.prompt_tokens.count)


def test_a_tag_that_no_request_has_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ProfileError, match='no request has the tag "x"; the tags are: team'):
        inspect(chat(1, tags={"team": "a"}), by="tag:x")


@pytest.mark.parametrize(
    ("requests", "more", "problem"),
    [
        ([chat(1)], {}, "no arrival times"),
        ([chat(1)], {}, "1 of 1 requests have no recorded prompt tokens"),
        ([chat(1)], {}, "no limit on generated tokens"),
        ([chat(1)], {"text_bearing": False}, "acceptance, and so K, cannot"),
        ([chat(1, route="a"), chat(2, route="b")], {}, 'profile "a" has 1 sessions'),
        ([chat(1, session="a"), chat(2, session="b")], {}, "all 2 sessions have one request"),
        ([chat(1), chat(1), chat(1)], {}, "2 of 3 prompts are repeats"),
        ([chat(1, recorded=Recorded(status=500))], {}, "1 of 1 requests failed"),
    ],
)
def test_a_problem_is_said(requests: list[Request], more: dict[str, Any], problem: str) -> None:
    assert [text for text in inspect(*requests, **more).problems if problem in text]


def test_good_traffic_has_no_problems() -> None:
    recorded = Recorded(prompt_tokens=9, completion_tokens=4, duration_s=1)
    turns = [chat(n + 1, float(n), recorded, session=f"s{n // 2}", max_tokens=9) for n in range(16)]
    assert inspect(*turns).problems == ()


def test_what_the_reader_said_is_passed_on_and_json_reads_back() -> None:
    found = inspect(
        chat(1),
        rejected=(RejectedLine(2, "bad"),),
        notes=("timestamps read as milliseconds",),
        unhonoured={"images": 3},
    )
    assert Inspection.model_validate_json(found.model_dump_json()) == found
    told = json.loads(found.model_dump_json())
    assert told["rejected"] == [{"line": 2, "reason": "bad"}]
    assert (told["notes"], told["unhonoured"]) == (["timestamps read as milliseconds"], {"images": 3})


def test_no_prompt_text_gets_into_an_inspection() -> None:
    assert "hunter2" not in inspect(chat(1, tools=[{"name": "hunter2"}], user="hunter2"), by="auto").model_dump_json()


def kept_bytes(requests: Iterator[Request]) -> int:
    """Memory that is still held when all requests have passed."""
    columns = Columns()
    tracemalloc.start()
    try:
        for request in requests:
            columns.add(request)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_text_of_prompts_that_share_it() -> None:
    def traffic(chars: int) -> Iterator[Request]:
        stem = "".join(map(str, range(chars // 4)))[:chars]
        return (Request(f"r{n}", None, "/v1/completions", {"prompt": f"{stem} {n}"}, line=n) for n in range(1, 101))

    # 100 prompts of 40,000 characters are 4 MB; the first one's blocks are all that is remembered of them.
    assert kept_bytes(traffic(40_000)) < kept_bytes(traffic(1_000)) + 200_000
