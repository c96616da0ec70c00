"""Ports, process trees and logs: the parts of a launch that need no engine."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import runners
from runners import supervisor
from runners.phases import LogFollower
from runners.port import PortReservation, listening_inodes, only_listener
from runners.processes import find_engines

_TREE = (
    "import subprocess,sys,time; subprocess.Popen([sys.executable,'-c','import time; time.sleep(60)']); time.sleep(60)"
)


@pytest.fixture
def reservation() -> Iterator[PortReservation]:
    held = PortReservation()
    yield held
    held.release()


def test_a_reserved_port_is_not_given_to_anyone_else(reservation: PortReservation) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", reservation.port))


def test_a_server_that_reuses_addresses_can_listen_on_the_reserved_port(reservation: PortReservation) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", reservation.port))
        server.listen()
        assert only_listener(reservation.port, [os.getpid()])
        assert not only_listener(reservation.port, [os.getppid()])


def test_a_reservation_is_no_listener(reservation: PortReservation) -> None:
    assert listening_inodes(reservation.port) == frozenset()
    assert not only_listener(reservation.port, [os.getpid()])


def test_descendants_are_all_generations_below() -> None:
    with subprocess.Popen([sys.executable, "-c", _TREE]) as child:
        end = time.monotonic() + 5
        while len(tree := supervisor.descendants([child.pid])) < 1 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(tree) == 1
        assert set(supervisor.descendants([os.getpid()])) >= {child.pid, *tree}
        for pid in (*tree, child.pid):
            os.kill(pid, 9)


def test_a_process_gone_has_no_stat() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert supervisor.read_stat(child.pid) is None


def test_stat_survives_odd_process_names(tmp_path: Path) -> None:
    odd = tmp_path / "a) R (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as child:
        stat = supervisor.read_stat(child.pid)
        child.kill()
    assert stat is not None
    assert stat[0] == os.getpid()


def test_this_process_is_never_taken_for_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_TUNER_STUDY", "a-study")
    assert os.getpid() not in {process.pid for process in find_engines()}


def test_shared_memory_that_is_older_than_the_launch_or_not_of_it_is_kept(tmp_path: Path) -> None:
    segment, foreign = tmp_path / "segment", tmp_path / "foreign"
    for path in (segment, foreign):
        path.write_bytes(b"x")
    inodes, now = {segment.stat().st_ino}, time.time()
    assert supervisor.remove_segments(inodes, since=now + 60, folder=str(tmp_path)) == []
    assert supervisor.remove_segments(inodes, since=now - 60, folder=str(tmp_path)) == [str(segment)]
    assert foreign.exists()


def test_a_semaphore_is_seen_in_the_maps_of_the_process_that_made_it() -> None:
    lock = multiprocessing.get_context("spawn").Lock()
    name = Path(f"/dev/shm/sem.{lock._semlock.name.lstrip('/')}")  # type: ignore[attr-defined]  # noqa: S108 - its file
    assert name.stat().st_ino in supervisor.shared_memory_of([os.getpid()])


def test_phases_follow_whole_lines_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("")
    phases: list[str] = []
    follower = LogFollower(log, phases.append)
    with log.open("a") as file:
        file.write("INFO [model.py:733] Resolved architecture: Qwen3ForCausalLM\nStarting to load mo")
    follower.update()
    with log.open("a") as file:
        file.write("del /models/x...\nStarting to load model /models/x...\n")
    follower.update()
    assert phases == ["starting", "reading configuration", "loading weights"]


def test_every_public_name_resolves() -> None:
    assert sorted(runners.__all__) == list(runners.__all__)
    assert [name for name in runners.__all__ if getattr(runners, name, None) is None] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = runners.no_such_name


def test_the_supervisor_runs_without_site_packages_and_ends_with_its_tuner() -> None:
    command = [sys.executable, "-I", "-S", supervisor.__file__]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
