"""Every request is accounted for: on the client, between client and server, from one process and from several."""

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads import Block, Load, Recorded, Request, WorkloadError, replay, summarise
from workloads.replay import ReplayResult

if TYPE_CHECKING:
    from tests.integration.replay.conftest import ScriptedServer

BEHAVIOURS = ("good", "status_503", "reset", "unfinished", "error_midway", "json", "hang", "stalls", "reset_midway")


def request(line: int, offset_s: float | None = None, session: str | None = None, **body: Any) -> Request:
    full = {"messages": [{"role": "user", "content": "hi"}], "user": f"r{line}", **body}
    recorded = Recorded(duration_s=0.01)
    return Request(f"r{line}", offset_s, "/v1/chat/completions", full, session=session, line=line, recorded=recorded)


def check_accounts(result: ReplayResult, server: "ScriptedServer", names: list[str]) -> None:
    """What must hold of any replay that was not cancelled."""
    metrics = summarise(result)
    assert [o.request_id for o in result.outcomes] == names
    assert metrics.requests == len(names) == metrics.completed + sum(metrics.errors.values())
    assert metrics.sent + sum(o.sent_s is None for o in result.outcomes) == len(names)
    assert all(o.error == "abandoned" for o in result.outcomes if o.sent_s is None)
    # The server saw each request that was sent once, and no other.
    assert sorted(server.started) == sorted(o.request_id for o in result.outcomes if o.sent_s is not None)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_mix_of_faults_under_any_load_adds_up(scripted: "_Hosted", data: st.DataObject) -> None:
    behaviours = data.draw(st.lists(st.sampled_from(BEHAVIOURS), min_size=1, max_size=12))
    sessions = data.draw(
        st.lists(st.sampled_from([None, "a", "b"]), min_size=len(behaviours), max_size=len(behaviours))
    )
    load = data.draw(
        st.sampled_from(
            [Load("concurrency", 3), Load("concurrency", 2, think=True), Load("recorded", 1), Load("rate", 200, cv=2.0)]
        )
    )
    requests = tuple(
        request(line, 0.002 * line, session, behaviour=behaviour)
        for line, (behaviour, session) in enumerate(zip(behaviours, sessions, strict=True))
    )
    scripted.run(_one_replay(scripted.server, requests, load, deadline_s=data.draw(st.sampled_from([0.05, 0.4]))))


async def _one_replay(server: "ScriptedServer", requests: tuple[Request, ...], load: Load, deadline_s: float) -> None:
    server.started.clear()
    result = await replay(server.target, [Block("p", 0, requests)], load, deadline_s=deadline_s, request_timeout_s=0.15)
    check_accounts(result, server, [each.id for each in requests])
    await server.until_in_flight(0)


class _Hosted:
    """A scripted server and the event loop that it lives on, for tests that hypothesis calls."""

    def __init__(self, server: "ScriptedServer", runner: asyncio.Runner) -> None:
        self.server = server
        self._runner = runner

    def run(self, work: Any) -> None:
        """Run a coroutine beside the server."""
        self._runner.run(work)


@pytest.fixture
def scripted() -> Any:
    """A running scripted server."""
    from tests.integration.replay.conftest import running_server  # noqa: PLC0415 - importlib mode has no siblings

    with asyncio.Runner() as runner:
        context = running_server()
        server = runner.run(context.__aenter__())
        yield _Hosted(server, runner)
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.slow
@pytest.mark.parametrize("load", [Load("concurrency", 5), Load("rate", 400), Load("recorded", 1)], ids=str)
async def test_several_processes_send_what_one_would(server: "ScriptedServer", load: Load) -> None:
    requests = tuple(
        request(
            line,
            0.004 * line,
            f"s{line // 2}" if line < 12 else None,
            behaviour="status_503" if line == 7 else "good",
            gap_s=0.02,  # long enough that requests of all processes meet
        )
        for line in range(40)
    )
    result = await replay(server.target, [Block("p", 0, requests)], load, client_processes=3, keep_text=True)
    check_accounts(result, server, [each.id for each in requests])
    metrics = summarise(result)
    assert (metrics.completed, metrics.errors) == (39, {"http_503": 1})
    assert {o.text for o in result.outcomes if o.error is None} == {"éééé"}
    assert {bool(header["Authorization"]) for header in server.headers} == {True}
    ends = {o.request_id: o.end_s for o in result.outcomes}
    for line in range(0, 12, 2):
        second = result.outcomes[line + 1]
        assert second.sent_s is not None
        assert second.sent_s >= ends[f"r{line}"]
    if load.kind == "concurrency":
        assert server.most_in_flight == 5
    else:
        # All count from one clock: processes start a tenth of a second apart, requests only ever swap with near ones.
        due_s = {o.request_id: o.scheduled_s or 0.0 for o in result.outcomes}
        order = [due_s[name] for name in server.started if int(name[1:]) >= 12]
        assert all(latest - due < 0.05 for latest, due in zip(itertools.accumulate(order, max), order, strict=True))


@pytest.mark.slow
async def test_cancelling_several_processes_leaves_no_request_and_no_process_behind(server: "ScriptedServer") -> None:
    block = Block("p", 0, tuple(request(line, behaviour="stalls") for line in range(6)))
    running = asyncio.create_task(replay(server.target, [block], Load("concurrency", 6), client_processes=2))
    await server.until_in_flight(6)
    clients = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
    assert len(clients) == 2
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await server.until_in_flight(0)
    assert [child for child in clients if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
async def test_a_client_process_that_dies_ends_the_replay_with_its_exit_code(server: "ScriptedServer") -> None:
    block = Block("p", 0, tuple(request(line, behaviour="stalls") for line in range(4)))
    running = asyncio.create_task(replay(server.target, [block], Load("concurrency", 4), client_processes=2))
    await server.until_in_flight(4)
    victim = next(child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline()))
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(WorkloadError, match="exit code -9"):
        await running
    await server.until_in_flight(0)


_TWO_PROCESSES = """
import asyncio, sys
from workloads import Block, Load, Request, Target, replay
body = {"messages": [{"role": "user", "content": "x"}], "behaviour": "stalls", "user": "x"}
requests = tuple(Request(f"r{n}", None, "/v1/chat/completions", body, line=n) for n in range(4))

async def main():
    await replay(Target(sys.argv[1], "", "m"), [Block("p", 0, requests)], Load("concurrency", 4), client_processes=2)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.slow
async def test_client_processes_end_with_a_tuner_that_is_killed(server: "ScriptedServer", tmp_path: Path) -> None:
    script = tmp_path / "two_processes.py"
    script.write_text(_TWO_PROCESSES)
    root = str(Path(__file__).parents[3])
    tuner = await asyncio.create_subprocess_exec(
        sys.executable, str(script), server.target.base_url, env={**os.environ, "PYTHONPATH": root}
    )
    await server.until_in_flight(4)
    clients = [c for c in psutil.Process(tuner.pid).children() if "spawn_main" in " ".join(c.cmdline())]
    assert len(clients) == 2
    tuner.kill()
    await tuner.wait()
    await server.until_in_flight(0)
    _, alive = await asyncio.to_thread(psutil.wait_procs, clients, 20)
    assert alive == []


async def test_a_turn_waits_for_the_recorded_think_time_after_the_turn_before(server: "ScriptedServer") -> None:
    # Recorded: 0.01 s to answer, the next turn 0.11 s after the first was sent: 0.1 s of thought, 0.05 at double speed.
    turns = tuple(request(line, 0.11 * line, "s", gap_s=0.03, tokens=2) for line in range(2))
    for load, think_s in ((Load("recorded", 2), 0.05), (Load("concurrency", 1, think=True), 0.1)):
        first, second = (await replay(server.target, [Block("p", 0, turns)], load)).outcomes
        assert second.sent_s is not None
        assert think_s - 0.001 <= second.sent_s - first.end_s < think_s + 0.1
    plain = (await replay(server.target, [Block("p", 0, turns)], Load("concurrency", 1))).outcomes
    assert (plain[1].sent_s or 9) - plain[0].end_s < 0.05


async def test_think_times_that_are_not_known_are_refused(server: "ScriptedServer") -> None:
    turns = tuple(Request(f"r{n}", float(n), "/v1/completions", {"prompt": "x"}, session="s", line=n) for n in (1, 2))
    with pytest.raises(WorkloadError, match=r'before request "r2" \(line 2\) is not known'):
        await replay(server.target, [Block("p", 0, turns)], Load("concurrency", 1, think=True))
    assert server.bodies == []
