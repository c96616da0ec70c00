"""The simulated engine over real HTTP: answers, streams, metrics, cache, limits, start and stop."""

import asyncio
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

DFLASH = json.dumps({"method": "dflash", "model": "x/dflash", "num_speculative_tokens": 7})
STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
CODE = "def add(first, second):\n    return"


@pytest.fixture(scope="module")
def engine(start_shared: Any) -> Any:
    """An engine with DFlash that the tests of this file share."""
    return start_shared("--speculative-config", DFLASH, "--enable-prompt-tokens-details")


async def test_a_completion_has_text_reason_and_usage(engine: Any) -> None:
    async with engine.client() as client:
        answer = await client.complete(prompt=CODE, max_tokens=24, ignore_eos=True)
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert len(choice["text"].split()) == 24
    assert answer["usage"]["completion_tokens"] == 24
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + 24


async def test_an_answer_that_ends_by_itself_says_stop(engine: Any) -> None:
    async with engine.client() as client:
        answer = await client.complete(prompt=CODE, max_tokens=3000)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert len(answer["choices"][0]["text"].split()) == answer["usage"]["completion_tokens"] - 1


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_carries_the_tokens_of_a_verify_step_per_chunk(engine: Any, path: str) -> None:
    given = {"prompt": CODE} if path == "/v1/completions" else {"messages": [{"role": "user", "content": CODE}]}
    body = {**given, **STREAM, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    async with engine.client() as client:
        *events, done = await client.events(path, body)
        status, whole = await client.post(path, {**body, "stream": False, "stream_options": None})
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    *parts, last = chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 60
    counts = [part["usage"]["completion_tokens"] for part in parts]
    assert counts == sorted(counts)
    assert counts[-1] == 60
    assert len(counts) < 40
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
    pieces = [
        part["choices"][0].get("text") or part["choices"][0].get("delta", {}).get("content", "") for part in parts
    ]
    assert status == 200
    choice = whole["choices"][0]
    assert "".join(pieces) == (choice["text"] if "text" in choice else choice["message"]["content"])


async def test_a_chat_stream_opens_with_the_role(engine: Any) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], **STREAM, "max_tokens": 4, "temperature": 0}
    async with engine.client() as client:
        first = json.loads((await client.events("/v1/chat/completions", body))[0])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["usage"]["completion_tokens"] == 0


async def test_without_stream_options_there_is_no_usage(engine: Any) -> None:
    async with engine.client() as client:
        *events, _ = await client.events("/v1/completions", {"prompt": CODE, "stream": True, "max_tokens": 8})
    assert all("usage" not in json.loads(event) for event in events)


async def test_metrics_add_up_with_the_usage_of_the_answers(engine: Any) -> None:
    async with engine.client() as client:
        before = await client.counters()
        answers = await asyncio.gather(
            *(client.complete(prompt=f"{CODE} {index}", max_tokens=10 + 7 * index) for index in range(8))
        )
        after = await client.counters()
    delta = {key: value - before.get(key, 0.0) for key, value in after.items()}
    usage = [answer["usage"] for answer in answers]
    reasons = [answer["choices"][0]["finish_reason"] for answer in answers]
    assert delta["generation_tokens_total"] == sum(item["completion_tokens"] for item in usage)
    assert delta["prompt_tokens_total"] == sum(item["prompt_tokens"] for item in usage)
    assert delta["prefix_cache_queries_total"] == delta["prompt_tokens_total"]
    assert delta["prefix_cache_hits_total"] == sum(i["prompt_tokens_details"]["cached_tokens"] for i in usage)
    for reason in ("stop", "length"):
        assert delta[f"request_success_total[{reason}]"] == reasons.count(reason)
    assert delta["request_generation_tokens_sum"] == delta["generation_tokens_total"]
    assert delta["e2e_request_latency_seconds_count"] == 8
    drafts, accepted = delta["spec_decode_num_drafts_total"], delta["spec_decode_num_accepted_tokens_total"]
    assert delta["spec_decode_num_draft_tokens_total"] == 7 * drafts
    assert accepted == sum(delta[f"spec_decode_num_accepted_tokens_per_pos_total[{k}]"] for k in range(7))
    # Every step yields its accepted tokens and one more; the last step of an answer may be cut short.
    assert drafts + 8 <= delta["generation_tokens_total"] <= drafts + accepted + 8
    parts = delta["request_queue_time_seconds_sum"] + delta["request_inference_time_seconds_sum"]
    assert parts == pytest.approx(delta["e2e_request_latency_seconds_sum"])


async def test_concurrency_n_keeps_n_requests_running(start: Any) -> None:
    engine = start(env={"SIMULATED_TIME_SCALE": "1"})
    concurrency, rounds = 6, 3

    async def user(client: Any, number: int) -> None:
        for turn in range(rounds):
            await client.complete(prompt=f"request {number} {turn}", max_tokens=60, ignore_eos=True)

    async with engine.client() as client:
        before, start_s = await client.counters(), time.monotonic()
        await asyncio.gather(*(user(client, number) for number in range(concurrency)))
        duration_s, after = time.monotonic() - start_s, await client.counters()
    running_s = after["request_inference_time_seconds_sum"] - before["request_inference_time_seconds_sum"]
    assert running_s / duration_s == pytest.approx(concurrency, rel=0.2)


async def test_steps_take_the_time_of_the_calibration(start: Any, tmp_path: Path) -> None:
    calibration = tmp_path / "flat.yaml"
    calibration.write_text("costs: {step_s: 0.02, verify_curve: [[1, 0.0]], per_prefill_token_s: 0.0}\n")
    engine = start("--calibration", str(calibration), env={"SIMULATED_TIME_SCALE": "2"})
    async with engine.client() as client:
        start_s = time.monotonic()
        await client.complete(prompt="hi", max_tokens=100, ignore_eos=True)
        duration_s = time.monotonic() - start_s
        after = await client.counters()
    # 100 steps of 20 ms at twice the speed; a busy host can only be slower, and what it loses is counted.
    assert 0.99 <= duration_s < 2.0 + after["simulated:lost_time_seconds_total"]
    assert after["time_to_first_token_seconds_sum"] >= 0.0099


async def test_greedy_text_does_not_depend_on_speculation(start: Any, engine: Any) -> None:
    plain = start()
    prompts = [f"request number {index}" for index in range(6)]
    texts = []
    for one in (plain, engine):
        async with one.client() as client:
            answers = await asyncio.gather(*(client.complete(prompt=prompt, max_tokens=50) for prompt in prompts))
            texts.append([answer["choices"][0]["text"] for answer in answers])
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 6


async def test_sampled_text_depends_on_the_seed(engine: Any) -> None:
    async with engine.client() as client:
        body = {"prompt": "story", "max_tokens": 20, "temperature": 0.8, "ignore_eos": True}
        texts = [(await client.complete(**body, seed=seed))["choices"][0]["text"] for seed in (1, 1, 2)]
        free = [(await client.complete(**body))["choices"][0]["text"] for _ in range(2)]
    assert texts[0] == texts[1] != texts[2]
    assert free[0] != free[1]


async def test_the_cache_is_used_reset_and_isolated_by_salt(engine: Any) -> None:
    body = {"prompt": list(range(9000, 9200)), "max_tokens": 2}

    async def cached(client: Any, **more: Any) -> int:
        usage = (await client.complete(**body, **more))["usage"]
        count: int = usage["prompt_tokens_details"]["cached_tokens"]
        return count

    async with engine.client() as client:
        assert [await cached(client), await cached(client)] == [0, 176]
        assert [await cached(client, cache_salt="a"), await cached(client, cache_salt="a")] == [0, 176]
        assert (await client.post("/reset_prefix_cache", None))[1] == {"success": True}
        assert await cached(client) == 0


async def test_reset_is_refused_while_requests_run(engine: Any) -> None:
    async with engine.client() as client:
        task = asyncio.create_task(client.complete(prompt="long", max_tokens=400, ignore_eos=True))
        await client.until("num_requests_running", positive=True)
        assert (await client.post("/reset_prefix_cache", None))[1] == {"success": False}
        assert (await client.get("/load"))["server_load"] == 1
        await task
        assert (await client.post("/reset_prefix_cache", None))[1] == {"success": True}


async def test_a_client_that_goes_away_frees_its_place(engine: Any) -> None:
    async with engine.client() as client:
        before = await client.counters()
        body = {"prompt": "left alone", "max_tokens": 3000, "ignore_eos": True, "stream": True}
        async with client.http.post("/v1/completions", json=body) as response:
            await response.content.readline()
        await client.until("num_requests_running", positive=False)
        after = await client.counters()
    assert after["request_success_total[abort]"] - before["request_success_total[abort]"] == 1
    assert after["kv_cache_usage_perc"] == 0.0


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic key-of-the-test"}])
async def test_only_the_right_key_opens_v1(engine: Any, header: dict[str, str]) -> None:
    async with engine.client() as client:
        session = client.http
        headers = {"Authorization": "", **header}
        async with session.get("/v1/models", headers=headers) as models:
            assert models.status == 401
            assert await models.json() == {"error": "Unauthorized"}
        async with session.get("/health", headers=headers) as health:
            assert health.status == 200


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "other", "prompt": "x"}, 404, "The model `other` does not exist."),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"prompt": "x", "max_tokens": 9999}, 400, "maximum context length is 4096 tokens"),
        ({"prompt": list(range(5000))}, 400, "your prompt contains 5000 input tokens"),
        ({"prompt": "x", "temperature": -1}, 400, "temperature must be in [0, 2]"),
        ({"prompt": "x", "n": 2}, 400, "n is 2"),
        ([], 400, "must be a JSON object"),
    ],
)
async def test_wrong_requests_are_answered_with_the_reason(engine: Any, body: Any, status: int, words: str) -> None:
    async with engine.client() as client:
        answered, answer = await client.post("/v1/completions", body)
    assert answered == status
    assert words in answer["error"]["message"]
    assert answer["error"]["code"] == status


async def test_broken_json_unknown_paths_and_methods(engine: Any) -> None:
    async with engine.client() as client:
        async with client.http.post("/v1/completions", data=b"{") as response:
            assert response.status == 400
        async with client.http.get("/v1/nothing") as response:
            assert response.status == 404
        async with client.http.get("/v1/completions") as response:
            assert response.status == 405


async def test_server_info_shows_effective_values(start: Any, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        f"max-num-seqs: 8\nblock-size: 32\nenable-prefix-caching: false\nspeculative-config: {DFLASH}\n"
        "served-model-name: [mine]\noverride-generation-config: {temperature: 0.7}\n"
    )
    engine = start("--config", str(file))
    async with engine.client() as client:
        config = (await client.get("/server_info?config_format=json"))["vllm_config"]
        assert (await client.get("/version"))["version"] == "0.32.0+simulated"
        assert [card["id"] for card in (await client.get("/v1/models"))["data"]] == ["mine"]
    assert config["cache_config"]["block_size"] == 32
    assert config["cache_config"]["enable_prefix_caching"] is False
    assert config["scheduler_config"]["max_num_seqs"] == 8
    assert config["speculative_config"]["num_speculative_tokens"] == 7
    assert config["speculative_config"]["disable_eagle_block_drop"] is False
    assert config["model_config"]["override_generation_config"] == {"temperature": 0.7}


async def test_development_routes_need_development_mode(start: Any) -> None:
    engine = start(env={"VLLM_SERVER_DEV_MODE": "0"})
    async with engine.client() as client, client.http.post("/reset_prefix_cache") as response:
        assert response.status == 404


async def test_tokenize_counts_what_a_request_would_count(engine: Any) -> None:
    async with engine.client() as client:
        status, answer = await client.post("/tokenize", {"messages": [{"role": "user", "content": CODE}]})
        body = {"messages": [{"role": "user", "content": CODE}], "max_tokens": 1}
        usage = (await client.post("/v1/chat/completions", body))[1]["usage"]
    assert status == 200
    assert answer["count"] == len(answer["tokens"]) == usage["prompt_tokens"]


def test_requests_in_pieces_and_back_to_back_share_a_connection(engine: Any) -> None:
    request = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as connection:
        connection.sendall(request[:10])
        time.sleep(0.02)
        connection.sendall(request[10:] + request + last)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.count(b"0.32.0+simulated") == 3


@pytest.mark.parametrize(
    "request_bytes",
    [b"nonsense\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"a" * 70_000],
)
def test_what_is_not_http_is_refused_and_closed(engine: Any, request_bytes: bytes) -> None:
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as connection:
        connection.sendall(request_bytes)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 4")


def test_sigterm_stops_it_in_order(start: Any) -> None:
    engine = start()
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(timeout=10) == 0
    assert "Shutting down" in engine.log()


def test_sigterm_stops_it_during_a_start(start: Any) -> None:
    engine = start(faults="slow_start=60", wait=False)
    while "Initializing" not in engine.log():
        time.sleep(0.02)
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(timeout=10) == 0


def test_the_log_tells_the_phases_of_a_start(start: Any) -> None:
    log = start().log()
    phases = ("Initializing", "Starting to load model", "GPU KV cache size", "Application startup complete")
    positions = [log.find(phase) for phase in phases]
    assert -1 not in positions
    assert positions == sorted(positions)


def test_a_taken_port_is_a_failed_start(start: Any, engine: Any) -> None:
    second = start(port=engine.port, wait=False)
    assert second.process.wait(timeout=30) == 1
    assert "Address already in use" in second.log()


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--frobnicate",), 2, "unrecognized arguments: --frobnicate"),
        (("--calibration", "no-such"), 2, "no calibration 'no-such'"),
        (("--max-model-len", "99999"), 1, "ValueError: User-specified max_model_len (99999)"),
        (("--gpu-memory-utilization", "0.3"), 1, "Engine core initialization failed"),
    ],
)
def test_a_failed_start_has_vllms_exit_code_and_words(
    start: Any, flags: tuple[str, ...], code: int, words: str
) -> None:
    engine = start(*flags, wait=False)
    assert engine.process.wait(timeout=30) == code
    assert words in engine.log()
