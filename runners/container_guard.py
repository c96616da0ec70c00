"""The process that holds one container: runs it, passes its output on, and ends it by its id when told to end.

Run as a lone file, ``python -I -S container_guard.py``, in the place of an engine under ``runners.supervisor``: the
supervisor ends it with SIGTERM, also when the tuner was killed, and a container is no descendant of anything that the
supervisor could kill. Its arguments are the limit in seconds, the file for the container's id, the container command,
and the arguments of ``run``. Ends with the container's exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

_POLL_S = 0.05
_COMMAND_LIMIT_S = 30.0
# The daemon makes a container, and writes its id, a moment after `run` was called.
_ID_LIMIT_S = 5.0


class _StopError(Exception):
    """The order to end, in the middle of waiting."""


class Guard:
    """One container from `run` to its removal."""

    def __init__(self, stop_s: float, cid_path: str, command: str, arguments: list[str]) -> None:
        self._stop_s, self._cid_path, self._command = stop_s, cid_path, command
        # A session of its own: signals reach the container through `stop` alone, and only once.
        self._run = subprocess.Popen([command, *arguments], start_new_session=True)

    def hold(self) -> int:
        """Wait for the container or for the order to end it."""
        try:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, self._on_signal)
            return self._run.wait()
        except _StopError:
            self._end()
        return self._run.wait()

    def _end(self) -> None:
        container = self._id(_ID_LIMIT_S)
        if container is None:
            self._run.kill()
            # It may have been made after all.
            container = self._id(1.0)
        if container is not None:
            self._call("stop", "--time", str(int(self._stop_s)), container, limit_s=self._stop_s + _COMMAND_LIMIT_S)
            self._call("rm", "--force", container, limit_s=_COMMAND_LIMIT_S)
        try:
            self._run.wait(_COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._run.kill()

    def _id(self, limit_s: float) -> str | None:
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if os.path.exists(self._cid_path):  # noqa: PTH110 - pathlib is too slow to import here
                with open(self._cid_path, encoding="ascii") as file:  # noqa: PTH123 - as above
                    if container := file.read().strip():
                        return container
            if self._run.poll() is not None:
                return None
            time.sleep(_POLL_S)
        return None

    def _call(self, *arguments: str, limit_s: float) -> None:
        """A command whose failure shows in what is left, which the runner looks for."""
        try:
            subprocess.run([self._command, *arguments], stdout=subprocess.DEVNULL, check=False, timeout=limit_s)
        except (OSError, subprocess.TimeoutExpired) as error:
            sys.stderr.write(f"container guard: {error}\n")

    def _on_signal(self, _number: int, _frame: object) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise _StopError


def main() -> int:
    """Hold the container that the arguments describe."""
    stop_s, cid_path, command, *arguments = sys.argv[1:]
    return Guard(float(stop_s), cid_path, command, arguments).hold()


if __name__ == "__main__":
    sys.exit(main())
