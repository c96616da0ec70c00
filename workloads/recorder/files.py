"""The file of a recording: appended while it is live, put in order when it is finished. Knows nothing of HTTP.

Records are appended when their answers end, because whatever waited for an earlier, longer request would be lost with
the process. Replay wants them by arrival, so a finished file is sorted once, by an index that holds no text.
"""

import os
import time
from array import array
from pathlib import Path

import numpy as np

from workloads.errors import WorkloadFileError

MODE = 0o600
_RETRY_S = 60.0
"""After a rotation that failed: sorting a large file again for every record would stop the writing."""

PREFIX = b'{"timestamp_s":'
"""How every line begins, so that it can be sorted without being parsed."""


class RecordingFile:
    """The live file, and the finished ones that rotation has left beside it."""

    def __init__(self, path: Path, rotate_bytes: int | None, rotate_every_s: float | None) -> None:
        self.path = path
        self.parts: list[Path] = []
        self._rotate_bytes = rotate_bytes
        self._rotate_every_s = rotate_every_s
        self._not_before_s = 0.0
        self._begin()

    def _begin(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, MODE)
        except FileExistsError:
            raise WorkloadFileError(
                f"{self.path} exists and is never written over; name another --out, or move it away"
            ) from None
        except OSError as error:
            raise WorkloadFileError(f"{self.path} cannot be made: {error.strerror}; name another --out") from error
        self._size_bytes = 0
        self._begun_s = time.monotonic()

    def append(self, line: bytes) -> None:
        """Write one line whole or not at all.

        Raises:
            OSError: it could not be written; the file ends with the line before.
        """
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(line)

    @property
    def due(self) -> bool:
        """Whether the live file is large or old enough to be finished."""
        if not self._size_bytes or time.monotonic() < self._not_before_s:
            return False
        old = self._rotate_every_s is not None and time.monotonic() - self._begun_s >= self._rotate_every_s
        return old or (self._rotate_bytes is not None and self._size_bytes >= self._rotate_bytes)

    def rotate(self) -> Path:
        """Finish the live file under a name with a number, and begin another.

        Raises:
            OSError: it could not be put in order; it is as it was and goes on growing.
        """
        self._not_before_s = time.monotonic() + _RETRY_S
        number = 1
        while (part := self.path.with_name(f"{self.path.stem}.{number:04d}{self.path.suffix}")).exists():
            number += 1
        put_in_order(self.path, part)
        os.close(self._descriptor)
        self.parts.append(part)
        self._not_before_s = 0.0
        self._begin()
        return part

    def close(self) -> None:
        """Finish the live file; one without a record is removed.

        Raises:
            OSError: it could not be put in order; all its records are there, by the end of their answers.
        """
        os.close(self._descriptor)
        if not self._size_bytes:
            self.path.unlink(missing_ok=True)
            return
        put_in_order(self.path, self.path)
        self.parts.append(self.path)


def put_in_order(path: Path, target: Path) -> int:
    """Sort a recording by arrival, count its time from its first request, and give it the name `target`.

    Memory grows by 24 bytes a record, not with its text. Returns the number of records.

    Raises:
        WorkloadFileError: the file is not one that the recorder wrote.
        OSError: the file cannot be read, or there is no room for its copy; it is left as it was.
    """
    times, ends = _index(path)
    order = np.argsort(times, kind="stable")
    if not len(times):
        return 0
    first_s = float(times[order[0]])
    if first_s == 0 and bool(np.all(times[:-1] <= times[1:])):
        if target != path:
            path.rename(target)
        return len(times)
    draft = path.with_name(f"{path.name}.ordering")
    draft.unlink(missing_ok=True)
    try:
        _write_sorted(path, draft, order, ends, first_s)
        draft.replace(target)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    if target != path:
        path.unlink()
    return len(times)


def _index(path: Path) -> tuple["np.ndarray[tuple[int], np.dtype[np.float64]]", "array[int]"]:
    times, ends, end = array("d"), array("q", [0]), 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break  # the end of a file whose host lost power
            text, comma, _ = line[len(PREFIX) : len(PREFIX) + 40].partition(b",")
            try:
                times.append(float(text))
            except ValueError:
                comma = b""
            if not comma or not line.startswith(PREFIX):
                raise WorkloadFileError(f"{path}:{number} was not written by tune record; sort the file by other means")
            end += len(line)
            ends.append(end)
    return np.array(times, dtype=np.float64), ends


def _write_sorted(
    path: Path, draft: Path, order: "np.ndarray[tuple[int], np.dtype[np.int64]]", ends: "array[int]", first_s: float
) -> None:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as sink:
        for position in order:
            source.seek(ends[position])
            line = source.read(ends[position + 1] - ends[position])
            at, _, rest = line[len(PREFIX) :].partition(b",")
            sink.write(b"%s%r,%s" % (PREFIX, round(float(at) - first_s, 6), rest))
        sink.flush()
        os.fsync(descriptor)
