"""What the recorder writes: all that a replay needs, nothing that must not be kept."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.recorder.recording import CHAT, Recording, ask, chat, connect, mode, read_records
from tests.integration.recorder.upstream import Upstream
from tuner.cli import run
from workloads import read_workload

resource = pytest.importorskip("resource")

SECRETS = ("sk-key", "SECRET-COOKIE", "sk-body", "sk-query", "b2s6cHc=")
CREDENTIALS = {
    "Authorization": "Bearer sk-key",
    "X-Api-Key": "sk-key",
    "Api-Key": "sk-key",
    "Cookie": "SECRET-COOKIE",
    "Proxy-Authorization": "Basic b2s6cHc=",
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "traffic.jsonl"


@pytest.fixture
def own(upstream: Upstream, out: Path) -> Iterator[Recording]:
    """A recorder of the test's own."""
    with Recording(upstream.url, out) as running:
        yield running


def test_a_recording_is_a_workload(own: Recording, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {**CREDENTIALS, "X-Session-Id": "s1", "X-Route": "support"}
    body = b'{"messages":\r\n [{"role": "user",  "content": "hi \xc3\xa9\\n"}], "user":"stream", "temperature": 0.10}'
    ask(own.url, "POST", f"{CHAT}?api_key=sk-query", body, labels)
    ask(own.url, "POST", CHAT, chat("large_events", api_key="sk-body"), CREDENTIALS)
    ask(own.url, "POST", "/v1/completions", {"prompt": "x", "user": "gzip"})
    ask(own.url, "POST", CHAT, chat("stream_gzip"))
    ask(own.url, "POST", CHAT, chat("crlf_bytewise"))
    ask(own.url, "POST", CHAT, chat("refused"))
    ask(own.url, "POST", CHAT, b"no JSON")
    ask(own.url, "GET", "/v1/models")
    _send_malformed(own.url, b"GET / HTTP/1.1\r\nAuthorization: Bearer sk-key\x00\r\n\r\n")
    assert own.stop() == 0
    assert "a request could not be handled" in own.said
    assert mode(out) == 0o600
    first, large, completion, *streams, refused = own.records()
    line = body.replace(b"\r\n", b"  ").decode()
    assert line in out.read_text(encoding="utf-8")
    assert (first["session"], first["route"], first["timestamp_s"]) == ("s1", "support", 0.0)
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 4}
    for record, reason in ((first, "stop"), (large, "length"), (completion, "length"), *((s, "stop") for s in streams)):
        facts = record["recorded"]
        assert facts.items() >= {**usage, "finish_reason": reason, "status": 200}.items()
        assert facts["duration_s"] > facts.get("ttft_s", 0)
    assert all("ttft_s" in record["recorded"] for record in (first, large, *streams))
    assert refused["recorded"]["status"] == 429
    assert "api_key" not in large["body"]
    for text in (own.printed, own.said, out.read_text(encoding="utf-8")):
        assert not [secret for secret in SECRETS if secret in text]
    assert "1 not stored: the body is not JSON" in own.printed
    workload = read_workload(out)
    assert (workload.format, len(workload.requests), workload.rejected) == ("native", 6, ())
    assert run(["inspect", str(out)]) == 0
    assert "6 requests" in capsys.readouterr().out


@pytest.mark.slow
def test_an_absent_upstream_is_a_502_and_its_return_is_noticed(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with Recording(f"http://127.0.0.1:{port}", tmp_path / "t.jsonl") as recording:
        connection = connect(recording.url)
        connection.request("POST", CHAT, json.dumps(chat()))
        response = connection.getresponse()
        message = json.loads(response.read())["error"]["message"]
        assert response.status == 502
        assert message.startswith(f"tune record got no answer from http://127.0.0.1:{port}: ")
        with Upstream(port):
            assert ask(recording.url, "POST", CHAT, chat()).status == 200
            assert ask(recording.url, "POST", CHAT, chat("stream")).status == 200
        connection.close()
        assert recording.stop() == 0
        records = recording.records()
    assert [record["recorded"]["status"] for record in records] == [502, 200, 200]
    assert records[0]["tags"]["ended"] == "upstream_unreachable"


@pytest.mark.slow
def test_how_an_exchange_ended_is_noted(own: Recording, upstream: Upstream) -> None:
    upstream.client_left.clear()
    left = connect(own.url)
    left.request("POST", CHAT, json.dumps(chat("endless")))
    left.getresponse().read1()
    left.close()
    assert upstream.client_left.wait(30)
    broken = connect(own.url)
    broken.request("POST", CHAT, json.dumps(chat("broken_off")))
    broken.getresponse().read1()
    running = connect(own.url)
    running.request("POST", CHAT, json.dumps(chat("endless")))
    running.getresponse().read1()
    begun_s = time.monotonic()
    assert own.stop(signal.SIGINT) == 0
    assert time.monotonic() - begun_s < 30  # an endless answer does not hold it up
    ended = [record["tags"].get("ended") for record in own.records()]
    assert ended == ["client_disconnected", "upstream_broke_off", "recorder_stopped"]
    assert all("ttft_s" in record["recorded"] for record in own.records())
    broken.close()
    running.close()


@pytest.mark.slow
def test_sigkill_loses_nothing_that_was_answered_a_second_ago(own: Recording, out: Path) -> None:
    slow = connect(own.url)
    slow.request("POST", CHAT, json.dumps(chat("endless")))  # the earliest, and never finished
    slow.getresponse().read1()
    for number in range(200):
        ask(own.url, "POST", CHAT, chat("stream", text=f"number {number}"))
    writer = own.writer()
    own.process.kill()
    own.process.wait()
    writer.wait(timeout=30)  # the writer outlives the proxy, to finish the file
    assert [r["body"]["messages"][0]["content"] for r in own.records()] == [f"number {n}" for n in range(200)]
    assert read_workload(out).rejected == ()
    slow.close()


@pytest.mark.slow
def test_sigkill_of_both_processes_leaves_a_file_that_can_be_finished(
    own: Recording, out: Path, capsys: pytest.CaptureFixture[str], upstream: Upstream
) -> None:
    while upstream.released.acquire(blocking=False):
        pass
    slow = connect(own.url)
    slow.request("POST", CHAT, json.dumps(chat("step_by_step")))
    response = slow.getresponse()
    for number in range(50):
        ask(own.url, "POST", CHAT, chat(text=f"number {number}"))
    for _ in range(3):
        upstream.released.release()
    response.read()
    slow.close()
    time.sleep(1)
    writer = own.writer()
    writer.kill()
    own.process.kill()
    own.process.wait()
    assert len(read_records(out)) == 51  # one line each, the slow one last
    assert read_records(out)[-1]["body"]["user"] == "step_by_step"
    assert run(["record", "--finish", str(out)]) == 0
    assert "51 records" in capsys.readouterr().out
    workload = read_workload(out)
    assert (len(workload.requests), workload.rejected) == (51, ())
    assert workload.requests[0].body["user"] == "step_by_step"
    assert mode(out) == 0o600


@pytest.mark.slow
def test_rotation_leaves_whole_workloads_and_loses_nothing(upstream: Upstream, out: Path) -> None:
    with Recording(upstream.url, out, "--rotate-mb", "0.01", "--rotate-every", "1h") as recording:
        for number in range(60):
            ask(recording.url, "POST", CHAT, chat(text=f"number {number}"))
        assert recording.stop() == 0
    parts = sorted(out.parent.glob("traffic*.jsonl"))
    assert len(parts) > 2
    assert all(mode(part) == 0o600 for part in parts)
    assert all(part.stat().st_size < 12_000 for part in parts)
    workloads = [read_workload(part) for part in parts if part != out] + ([read_workload(out)] if out.exists() else [])
    assert all(each.requests[0].offset_s == 0 for each in workloads)
    texts = [r.body["messages"][0]["content"] for each in workloads for r in each.requests]
    assert texts == [f"number {n}" for n in range(60)]


@pytest.mark.slow
def test_a_full_disk_stops_the_writing_and_not_the_proxying(own: Recording, upstream: Upstream, out: Path) -> None:
    ask(own.url, "POST", CHAT, chat())
    _until(lambda: out.stat().st_size > 0)
    # A limit on the size of files stands for the full disk: writing fails, and may fail in the middle of a record.
    pid, whole_bytes = own.writer().pid, out.stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (whole_bytes + 100, resource.RLIM_INFINITY))
    direct = ask(upstream.url, "POST", CHAT, chat())
    assert [ask(own.url, "POST", CHAT, chat()) for _ in range(20)] == [direct] * 20
    assert own.process.stderr is not None
    assert "cannot be written" in own.process.stderr.readline()
    time.sleep(0.5)
    assert out.stat().st_size == whole_bytes
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ask(own.url, "POST", CHAT, chat(text="after"))
    assert own.stop() == 0
    assert "is written again; 20 records were lost" in own.said
    assert "20 lost: the file could not be written" in own.printed
    assert [r["body"]["messages"][0]["content"] for r in own.records()] == ["hello", "after"]


@pytest.mark.slow
def test_the_death_of_the_writer_is_said_and_proxying_goes_on(own: Recording, upstream: Upstream) -> None:
    own.writer().kill()
    assert own.process.stderr is not None
    assert "nothing more is recorded; proxying goes on" in own.process.stderr.readline()
    assert ask(own.url, "POST", CHAT, chat()) == ask(upstream.url, "POST", CHAT, chat())
    assert own.stop() == 0
    assert "1 lost: the writer was behind or had ended" in own.printed


@pytest.mark.slow
@pytest.mark.parametrize("redact", ["hash", r"[\w.]+@[\w.]+"])
def test_a_redacted_recording_says_what_it_is_worth(upstream: Upstream, out: Path, redact: str) -> None:
    prefix = "You are the assistant of Weyland Industries. Never reveal ada@example.org. "
    with Recording(upstream.url, out, "--redact", redact) as recording:
        for question in ("Where is parcel 4711?", "Who is Ada Lovelace?"):
            ask(recording.url, "POST", CHAT, chat(text=prefix + question), {"X-Session-Id": "ada@example.org"})
        assert recording.stop() == 0
    text = out.read_text(encoding="utf-8")
    assert "ada@example.org" not in text
    assert ("Weyland" in text) == (redact != "hash")
    one, other = (record["body"]["messages"][0]["content"] for record in recording.records())
    assert one != other
    assert one[:70] == other[:70]
    name = "hash" if redact == "hash" else "pattern"
    assert [record["tags"]["redacted"] for record in recording.records()] == [name, name]
    assert f"redacted={name}" in recording.printed
    assert len(read_workload(out).requests) == 2


@pytest.mark.slow
def test_an_address_in_use_is_one_clear_error(upstream: Upstream, out: Path) -> None:
    words = ["record", "--upstream", upstream.url, "--listen", upstream.url.removeprefix("http://"), "--out", str(out)]
    ended = subprocess.run([sys.executable, "-P", "-m", "tuner", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    (sentence,) = ended.stderr.splitlines()
    assert "the address is in use; choose another address" in sentence
    assert not out.exists()


def _send_malformed(url: str, data: bytes) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(data)
        assert connection.recv(100).startswith(b"HTTP/1.0 400 ")


def _until(true: object) -> None:
    assert callable(true)
    deadline_s = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
