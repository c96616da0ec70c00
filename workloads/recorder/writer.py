"""The writing process: exchanges from a pipe, one line of the native format for each, into the file.

It ends when the pipe does, whether the proxy closed it or died: what has arrived is written and the file is put in
order. Signals are the proxy's business, so a Ctrl-C in the terminal does not end it before its work.
"""

import os
import select
import signal
import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import orjson

from workloads.errors import LineError, WorkloadError
from workloads.recorder.answer import read_answer
from workloads.recorder.exchange import Facts, Frame, FrameDecoder
from workloads.recorder.files import RecordingFile
from workloads.recorder.redaction import Redaction, make_redaction
from workloads.recorder.settings import RecordSettings
from workloads.request import check_body, endpoint_of

_IDLE_S = 0.2
_INPUT, _OUTPUT = 0, 1
_READ_BYTES = 2**20
_INFLATED_BYTES = 256 * 2**20
_CREDENTIAL_FIELDS = ("api_key", "api-key", "apikey", "authorization", "extra_headers", "headers", "cookies")


def main() -> None:
    """Read the settings, say whether the file can be had, write until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    first, _, rest = _first_line()
    settings = RecordSettings.model_validate_json(first)
    try:
        writer = Writer(settings)
    except WorkloadError as error:
        _tell({"problem": str(error)})
        return
    _tell({"problem": None})
    decoder = FrameDecoder()
    data = rest
    while True:
        for frame in decoder.feed(data):
            writer.take(frame)
        if not select.select([_INPUT], [], [], _IDLE_S)[0]:
            writer.rest()
            data = b""
            continue
        data = os.read(_INPUT, _READ_BYTES)
        if not data:
            break
    writer.close()


def _first_line() -> tuple[bytes, bytes, bytes]:
    text = b""
    while b"\n" not in text:
        text += os.read(_INPUT, _READ_BYTES)
    return text.partition(b"\n")


class Writer:
    """Makes records and appends them."""

    def __init__(self, settings: RecordSettings) -> None:
        self._path = settings.out
        self._redaction = make_redaction(settings.redact)
        self._file = RecordingFile(settings.out, settings.rotate_bytes, settings.rotate_every_s)
        self._stored = 0
        self._unwritten = 0
        self._left_out: Counter[str] = Counter()
        self._told: bytes = b""
        self._broken = False

    def take(self, frame: Frame) -> None:
        """Write the record of one exchange, or count why there is none."""
        try:
            line = native_line(frame, self._redaction)
        except LineError as error:
            self._left_out[str(error)] += 1
            return
        try:
            self._file.append(line)
        except OSError as error:
            self._unwritten += 1
            if not self._broken:
                _notice(f"{self._path} cannot be written ({error.strerror}): records are lost; proxying goes on")
            self._broken = True
            return
        if self._broken:
            _notice(f"{self._path} is written again; {self._unwritten} records were lost so far")
            self._broken = False
        self._stored += 1
        self._rotate()

    def rest(self) -> None:
        """Nothing has arrived for a moment: time to say how it stands."""
        self._rotate()
        self._tell_account()

    def close(self) -> None:
        """Finish the file and say what became of everything."""
        try:
            self._file.close()
        except OSError as error:
            _notice(
                f"{self._path} could not be put in order ({error.strerror}); its records are all there; make room, then"
                f" `tune record --finish {self._path}`"
            )
            self._file.parts.append(self._path)
        self._tell_account()

    def _rotate(self) -> None:
        if not self._file.due:
            return
        try:
            _notice(f"{self._file.rotate()} is finished")
        except OSError as error:
            _notice(f"{self._path} could not be rotated ({error.strerror}); it goes on growing")

    def _tell_account(self) -> None:
        account = {
            "stored": self._stored,
            "left_out": dict(self._left_out),
            "unwritten": self._unwritten,
            "files": [str(part) for part in self._file.parts],
            "replaced": self._redaction.replaced,
            "replaced_share": self._redaction.replaced_share,
        }
        if (told := orjson.dumps(account)) != self._told:
            self._told = told
            _tell(account)


def native_line(frame: Frame, redaction: Redaction) -> bytes:
    """The record of an exchange; the body is embedded as it was sent unless something in it had to go.

    Raises:
        LineError: it is no request that could be replayed; the reason quotes nothing of it.
    """
    facts = frame.facts
    text = _plain_body(frame)
    body = _parse(text, facts)
    kept = {name: value for name, value in body.items() if name.lower() not in _CREDENTIAL_FIELDS}
    altered = redaction.body(kept)
    if altered is not None:
        text = orjson.dumps(altered)
    elif len(kept) < len(body):
        text = orjson.dumps(kept)
    else:
        # A line break in JSON is white space, because one in a text is written \n.
        text = text.replace(b"\r", b" ").replace(b"\n", b" ")
    tags = {"recorded_at": datetime.fromtimestamp(facts.arrived_unix_s, UTC).isoformat(timespec="milliseconds")}
    if altered is not None:
        tags["redacted"] = redaction.name
    if facts.ended:
        tags["ended"] = facts.ended
    begun = datetime.fromtimestamp(facts.arrived_unix_s - facts.arrived_s, UTC)
    record: dict[str, Any] = {
        "timestamp_s": round(facts.arrived_s, 6),
        "id": f"{begun:%Y%m%dT%H%M%S}-{facts.number}",
        "endpoint": facts.endpoint,
        "tags": tags,
        "body": orjson.Fragment(text),
        "recorded": read_answer(frame).known(),
    }
    if facts.route:
        record["route"] = facts.route
    if facts.session:
        record["session"] = redaction.label(facts.session)
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _plain_body(frame: Frame) -> bytes:
    encoding = frame.facts.request_encoding.strip().lower()
    if encoding in ("", "identity"):
        return frame.body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise LineError("the request's Content-Encoding is neither gzip nor deflate")
    try:
        return zlib.decompressobj(47).decompress(frame.body, _INFLATED_BYTES)  # 47: gzip or zlib, by the header
    except zlib.error:
        raise LineError("the request's compressed body is damaged") from None


def _parse(text: bytes, facts: Facts) -> dict[str, Any]:
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise LineError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise LineError("the body is no JSON object")
    try:
        endpoint_of(body, facts.endpoint)
        check_body(body)
    except LineError:
        # The reason may quote the body, and reasons are shown and counted.
        raise LineError("the body is no valid request (no messages or prompt, or a field of the wrong type)") from None
    return body


def _notice(sentence: str) -> None:
    _tell({"notice": sentence})


def _tell(message: dict[str, Any]) -> None:
    try:
        os.write(_OUTPUT, orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))
    except BrokenPipeError:
        # The proxy was killed: there is nobody to tell, and the file must still be finished.
        return
