"""What passes through the recorder is what would have passed without it."""

import http.client
import json
import threading
import time

import pytest

from tests.integration.recorder.recording import CHAT, HOP_BY_HOP, Recording, ask, chat, connect
from tests.integration.recorder.upstream import ANSWERS, STREAM, Upstream, event


def test_every_answer_is_the_same_with_and_without_the_recorder(upstream: Upstream, recording: Recording) -> None:
    for behaviour in ANSWERS.keys() - {"broken_off"}:
        for target in (CHAT, f"/{behaviour}"):  # one that is recorded, one that is not
            direct = ask(upstream.url, "POST", target, chat(behaviour))
            through = ask(recording.url, "POST", target, chat(behaviour))
            assert through == direct, f"{behaviour} at {target}"


@pytest.mark.slow
def test_a_head_request_gets_the_same_headers(upstream: Upstream, recording: Recording) -> None:
    assert ask(recording.url, "HEAD", "/whole") == ask(upstream.url, "HEAD", "/whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v1/models?after=a%2Fb&x=%20+&x=%C3%A9"),
        ("GET", "//odd/../path/%2e%2e/;p=1"),
        ("DELETE", "/v1/responses/r1"),
        ("PATCH", "/anything"),
        ("GET", CHAT),
    ],
)
def test_the_upstream_gets_the_request_as_it_was_sent(
    upstream: Upstream, recording: Recording, method: str, target: str
) -> None:
    headers = {"X-Own": "a,  b", "Authorization": "Bearer k", "Cookie": "c=1", "User-Agent": "own/1"}
    body = None if method == "GET" else b'{"a":  1}'
    ask(upstream.url, method, target, body, headers)
    ask(recording.url, method, target, body, headers)
    direct, through = upstream.seen[-2:]
    assert (through.method, through.target, through.body) == (direct.method, direct.target, direct.body)
    own = HOP_BY_HOP | {"host"}
    assert [(name, value) for name, value in through.headers if name.lower() not in own] == [
        (name, value) for name, value in direct.headers if name.lower() not in own
    ]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/whole", CHAT])
def test_a_chunked_request_body_arrives_whole(upstream: Upstream, recording: Recording, target: str) -> None:
    connection = connect(recording.url)
    pieces = [b'{"messages": [{"role": "user", ', b'"content": "in pieces"}]', b"}"]
    connection.request("POST", target, iter(pieces), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert upstream.seen[-1].body == b"".join(pieces)


def test_each_event_is_passed_on_before_the_next_one_is_made(upstream: Upstream, recording: Recording) -> None:
    connection = connect(recording.url)
    connection.request("POST", CHAT, b'{"user": "step_by_step", "messages": [{"role": "user", "content": "x"}]}')
    response = connection.getresponse()
    for number in range(3):
        # The upstream waits for us: an event held back anywhere would be waited for in vain.
        assert response.read1() == event(f"step {number}")
        upstream.released.release()
    assert response.read() == b""
    connection.close()


@pytest.mark.slow
def test_an_answer_that_breaks_off_does_not_end_well(recording: Recording) -> None:
    connection = connect(recording.url)
    connection.request("POST", "/broken_off", b"{}")
    response = connection.getresponse()
    with pytest.raises(http.client.IncompleteRead) as broken:
        response.read()
    assert broken.value.partial == STREAM[1] + b"data: "
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["endless", "silent"])
def test_a_client_that_leaves_ends_the_upstream_s_work(
    upstream: Upstream, recording: Recording, behaviour: str
) -> None:
    upstream.client_left.clear()
    count = len(upstream.seen)
    connection = connect(recording.url)
    connection.request("POST", CHAT, json.dumps(chat(behaviour)))
    while len(upstream.seen) == count:
        time.sleep(0.001)
    connection.close()
    assert upstream.client_left.wait(5)


@pytest.mark.slow
def test_requests_at_once_do_not_wait_for_each_other(upstream: Upstream, recording: Recording) -> None:
    expected = ask(upstream.url, "POST", CHAT, chat("large_events"))
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(recording.url, "POST", CHAT, chat("large_events"))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [expected] * 8


@pytest.mark.slow
def test_the_openai_client_works_unchanged(upstream: Upstream, recording: Recording) -> None:
    import openai  # noqa: PLC0415 - takes a second to import, which every test process would pay

    seen = []
    for url in (upstream.url, recording.url):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-secret", max_retries=0) as client:
            ask_for = client.chat.completions.create
            whole = ask_for(model="m", messages=[{"role": "user", "content": "x"}], user="whole")
            pieces = list(ask_for(model="m", messages=[{"role": "user", "content": "x"}], user="stream", stream=True))
            with pytest.raises(openai.RateLimitError):
                ask_for(model="m", messages=[{"role": "user", "content": "x"}], user="refused")
        seen.append((whole.model_dump(), [piece.model_dump() for piece in pieces]))
    assert seen[0] == seen[1]
    assert seen[1][0]["choices"][0]["message"]["content"] == "Grüße"
