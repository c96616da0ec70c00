"""The writer as the proxy sees it: a process that is given exchanges and says what became of them.

Sending never waits. What the writer has not taken is held up to a limit; beyond it exchanges are dropped and counted.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from workloads.recorder.exchange import Facts, Tape, encode
from workloads.recorder.settings import RecordError, RecordSettings

_CLOSE_S = 600.0
"""For the last sort of a large file; it takes about a second for 200 MB."""


@dataclass(slots=True)
class Account:
    """What became of the exchanges that were handed over, as the writer last told.

    Attributes:
        stored: Records in files.
        left_out: Exchanges that are no request to replay, by reason.
        unwritten: Records lost because the file could not be written.
        dropped: Exchanges lost because the writer was behind or gone.
        files: Finished files.
        replaced: Places in texts that patterns replaced.
        replaced_share: Share of characters that they replaced.
    """

    stored: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    unwritten: int = 0
    dropped: int = 0
    files: list[str] = field(default_factory=list)
    replaced: int = 0
    replaced_share: float = 0.0


class Channel:
    """A running writer."""

    def __init__(self, process: asyncio.subprocess.Process, pending_bytes: int, say: Callable[[str], None]) -> None:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        self.account = Account()
        self._process = process
        self._input = process.stdin
        self._pending_bytes = pending_bytes
        self._say = say
        self._open = True
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, settings: RecordSettings, say: Callable[[str], None]) -> "Channel":
        """Start a writer and wait until it has its file.

        Raises:
            RecordError: it cannot have it.
        """
        # -P: a directory `workloads` where the recorder is started must not hide this package.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "workloads.recorder",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None  # noqa: S101 - it was asked for
        assert process.stdout is not None  # noqa: S101 - it was asked for
        process.stdin.write(settings.model_dump_json().encode() + b"\n")
        first = await process.stdout.readline()
        if not first:
            raise RecordError(
                f"the process that writes {settings.out} ended at once ({await process.wait()}); see above"
            )
        problem = orjson.loads(first).get("problem")
        if problem:
            await process.wait()
            raise RecordError(problem)
        return cls(process, settings.pending_bytes, say)

    def send(self, facts: Facts, body: bytes, tape: Tape) -> None:
        """Hand an exchange over, or drop and count it."""
        if not self._open or self._input.transport.get_write_buffer_size() > self._pending_bytes:
            self.account.dropped += 1
            if self._open and self.account.dropped == 1:
                self._say("the writer is behind: exchanges are dropped and counted; proxying goes on")
            return
        self._input.writelines(encode(facts, body, tape))

    async def close(self) -> None:
        """Let the writer write what it has and finish its file.

        Raises:
            RecordError: it did not end.
        """
        self._open = False
        if self._process.returncode is None:
            self._input.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._listening
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            raise RecordError(
                f"the writer did not finish within {_CLOSE_S:.0f} s; its records are there, but not in order"
            ) from None

    async def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        while line := await self._process.stdout.readline():
            said = orjson.loads(line)
            if "notice" in said:
                self._say(said["notice"])
                continue
            dropped = self.account.dropped
            said["left_out"] = Counter(said["left_out"])
            self.account = Account(**said, dropped=dropped)
        if self._open:
            self._open = False
            self._say("the writing process has ended: nothing more is recorded; proxying goes on")
