"""The bytes of a workload file: opened, unpacked, and with the digest of what was read."""

import gzip
import hashlib
import io
import sys
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from workloads.errors import WorkloadFileError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ_BYTES: Final = 2**20
"""Read and hashed at once: each hand-over to the thread that hashes costs the reading a switch between threads."""

MAX_UNHASHED: Final = 4
"""Reads that may wait to be hashed."""
BOM: Final = b"\xef\xbb\xbf"
BROKEN_PACKING: Final = (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError)
"""What unpacking raises when a packed file is damaged or cut off."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_UNREADABLE: Final = {b"PK\x03\x04": "zip", b"PAR1": "parquet", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


class DigestingFile(io.RawIOBase):
    """A file that notes the digest of what is read from it, in a thread: hashing lets the reading go on."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="digest")
        self._pending: deque[Future[None]] = deque()

    def readable(self) -> bool:
        """Always: see `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """See `io.RawIOBase`."""
        count = self._file.readinto(buffer) or 0
        self._wait(MAX_UNHASHED - 1)
        self._pending.append(self._hasher.submit(self._digest.update, bytes(memoryview(buffer)[:count])))
        return count

    def close(self) -> None:
        """Close the file as well."""
        self._hasher.shutdown()
        self._file.close()
        super().close()

    def _wait(self, may_wait: int = 0) -> None:
        while len(self._pending) > may_wait:
            self._pending.popleft().result()

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the bytes read so far: those of the file, packed as it is."""
        self._wait()
        return f"sha256:{self._digest.hexdigest()}"


def open_text(path: Path, file: DigestingFile) -> io.BufferedReader:
    """The file's text as bytes, unpacked if need be.

    Raises:
        WorkloadFileError: if it is empty, binary or packed in a way that is not read.
    """
    text: io.BufferedReader[Any] = io.BufferedReader(file, READ_BYTES)
    head = text.peek(4096)
    # Both are readable as `BufferedReader` wants it, which their types do not say.
    packed: Any = None
    if head.startswith(_GZIP):
        packed = gzip.GzipFile(fileobj=text)
    elif head.startswith(_ZSTD):
        packed = zstd.ZstdFile(text)
    if packed is not None:
        text = io.BufferedReader(packed, READ_BYTES)
    try:
        _check_head(path, text.peek(4096))
    except BROKEN_PACKING as error:
        raise WorkloadFileError(f"{path} cannot be unpacked: {error}; copy it again") from error
    return text


def _check_head(path: Path, head: bytes) -> None:
    if not head.removeprefix(BOM).strip():
        raise WorkloadFileError(f"{path} is empty; record some traffic into it first")
    for magic, name in _UNREADABLE.items():
        if head.startswith(magic):
            raise WorkloadFileError(f"{path} is a {name} file; unpack it to text, one record a line")
    if b"\0" in head:
        raise WorkloadFileError(f"{path} is binary; a workload is UTF-8 text, one record a line")
