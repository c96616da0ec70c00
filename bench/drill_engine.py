"""The engine of the drill: a simulated one that fails on purpose when the recipe's K is asked for.

Run as a command in the place of `vllm serve`. What it does is said by DRILL_FAULTS, DRILL_TRICK, DRILL_ONCE (a file
that remembers that it was done) and DRILL_PORT_FILE (where it says which port it was given).
"""

import os
import signal
import sys
import time
from pathlib import Path

_FOREIGNER_LIMIT_S = 10.0


def main() -> None:
    """Do the trick, then become the engine."""
    os.environ["SIMULATED_FAULTS"] = ""
    once = os.environ["DRILL_ONCE"]
    if any('"num_speculative_tokens": 15' in word for word in sys.argv) and not (once and Path(once).exists()):
        if once:
            Path(once).touch()
        os.environ["SIMULATED_FAULTS"] = os.environ["DRILL_FAULTS"]
        TRICKS[os.environ["DRILL_TRICK"]]()
    words = [sys.executable, "-P", "-m", "runners.simulated", "serve", *sys.argv[1:]]
    os.execv(sys.executable, words)  # noqa: S606 - becoming another program is the point


def foreign_process() -> None:
    """Wait until a process outside this launch listens on the port."""
    port = int(sys.argv[sys.argv.index("--port") + 1])
    partial = Path(os.environ["DRILL_PORT_FILE"] + ".partial")
    partial.write_text(str(port), encoding="ascii")
    partial.rename(os.environ["DRILL_PORT_FILE"])
    end = time.monotonic() + _FOREIGNER_LIMIT_S
    while f":{port:04X} " not in Path("/proc/net/tcp").read_text(encoding="ascii").replace(" 0A ", " ") and (
        time.monotonic() < end
    ):
        time.sleep(0.02)
    time.sleep(0.2)


def second_server() -> None:
    """The same, and never serve: whoever asks the port gets the other's answers."""
    foreign_process()
    time.sleep(600)


def fill_disk() -> None:
    """Fill the file system of the current directory."""
    with Path("filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


def kill_later() -> None:
    """SIGKILL from outside of the engine's own doing, once it serves."""
    pid = os.getpid()
    if os.fork() == 0:
        time.sleep(1.5)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)


TRICKS = {
    "": lambda: None,
    "fill_disk": fill_disk,
    "foreign_process": foreign_process,
    "kill_later": kill_later,
    "second_server": second_server,
}

if __name__ == "__main__":
    main()
