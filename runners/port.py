"""A loopback port for one engine, and the proof that the engine, not somebody else, listens on it.

The port stays reserved while the engine starts: a bound socket that never listens keeps the kernel from giving the port
to anyone else, and does not stop a server that sets SO_REUSEADDR, as vLLM, uvicorn and aiohttp do, from binding and
listening beside it. What it cannot stop is another server that names the same port; hence the proof. Linux only.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"  # TCP_LISTEN in include/net/tcp_states.h, as printed in /proc/net/tcp
_LOOPBACK = "127.0.0.1"


class PortReservation:
    """A free loopback port, kept until ``release``."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((_LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port up; harmless when done twice."""
        self._socket.close()


def listening_inodes(port: int) -> frozenset[int]:
    """Socket inodes that listen on ``port`` at any local address of this network namespace."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():  # a kernel without IPv6
            continue
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(int(fields[9]))
    return frozenset(inodes)


def sockets_of(pids: Iterable[int]) -> frozenset[int]:
    """Socket inodes that the processes hold open."""
    inodes = set()
    for pid in pids:
        with suppress(FileNotFoundError, PermissionError, ProcessLookupError):  # gone, or not ours
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):  # closed meanwhile
                    target = str(descriptor.readlink())
                    if target.startswith("socket:["):
                        inodes.add(int(target[len("socket:[") : -1]))
    return frozenset(inodes)


def only_listener(port: int, pids: Iterable[int]) -> bool:
    """Something listens on ``port``, and nothing but these processes does."""
    listening = listening_inodes(port)
    return bool(listening) and listening <= sockets_of(pids)
