"""Handing exchanges over never waits: what a stopped writer cannot take is dropped beyond a limit, and counted."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.recorder.recording import read_records
from workloads.recorder import RecordSettings
from workloads.recorder.channel import Channel
from workloads.recorder.exchange import Facts, Tape

BODY = b'{"prompt": "%s"}' % (b"x" * 10_000)


@pytest.mark.slow
async def test_a_writer_that_is_behind_costs_records_and_no_time(tmp_path: Path) -> None:
    out, said = tmp_path / "t.jsonl", list[str]()
    settings = RecordSettings(upstream="http://host", out=out, pending_bytes=1_000_000)
    channel = await Channel.start(settings, said.append)
    (writer,) = psutil.Process().children()
    os.kill(writer.pid, signal.SIGSTOP)
    longest_s = 0.0
    for number in range(1, 301):
        begun_s = time.perf_counter()
        channel.send(Facts(number, "/v1/completions", number / 1000, 1e9 + number, status=200), BODY, Tape())
        longest_s = max(longest_s, time.perf_counter() - begun_s)
        await asyncio.sleep(0)
    os.kill(writer.pid, signal.SIGCONT)
    await channel.close()
    account = channel.account
    assert account.dropped > 100
    assert account.stored + account.dropped == 300 == len(read_records(out)) + account.dropped
    assert longest_s < 0.1
    assert [sentence for sentence in said if "the writer is behind" in sentence] == said
