"""`tune record`."""

import dataclasses
import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner.commands.options import Debug, Json, parse_duration
from tuner.errors import UsageError
from workloads.recorder import Recorded, RecordSettings, parse_listen, put_in_order
from workloads.recorder import record as record_traffic


def record(
    *,
    upstream: Annotated[str | None, Parameter(help="Root URL of the server, such as http://127.0.0.1:8000.")] = None,
    listen: Annotated[
        str, Parameter(help="HOST:PORT that clients send to; port 0 takes a free one.")
    ] = "127.0.0.1:8001",
    out: Annotated[Path, Parameter(help="File to write, in the native format; it must not exist.")] = Path(
        "api_traffic.jsonl"
    ),
    rotate_mb: Annotated[float | None, Parameter(help="Begin a new file at this size, MB (10^6 bytes).")] = None,
    rotate_every: Annotated[str | None, Parameter(help="Begin a new file after this time, such as 1h.")] = None,
    redact: Annotated[
        list[str] | None,
        Parameter(help="none (default), hash (every word), or a regular expression; that one may be repeated."),
    ] = None,
    session_header: Annotated[str, Parameter(help="Request header that names the conversation.")] = "x-session-id",
    route_header: Annotated[str, Parameter(help="Request header that names the kind of traffic.")] = "x-route",
    finish: Annotated[
        Path | None, Parameter(help="Put in order what a recorder left that was killed with its writer; nothing else.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Record live traffic: a proxy in front of a running server that writes a workload file."""
    del debug
    if finish is not None:
        return _finish(finish)
    if upstream is None:
        raise UsageError("--upstream is missing; name the server to pass requests to, such as http://127.0.0.1:8000")
    if rotate_mb is not None and rotate_mb <= 0:
        raise UsageError(f"--rotate-mb {rotate_mb} must be more than 0")
    host, port = parse_listen(listen)
    settings = RecordSettings(
        upstream=upstream,
        host=host,
        port=port,
        out=out.absolute(),
        rotate_bytes=int(rotate_mb * 1e6) or 1 if rotate_mb is not None else None,
        rotate_every_s=parse_duration("--rotate-every", rotate_every) if rotate_every is not None else None,
        redact=tuple(redact or ("none",)),
        session_header=session_header,
        route_header=route_header,
    )
    _report(record_traffic(settings, _say), as_json=json)
    return 0


def _say(sentence: str) -> None:
    print(f"tune record: {sentence}", file=sys.stderr, flush=True)


def _finish(path: Path) -> int:
    try:
        count = put_in_order(path, path)
    except OSError as error:
        raise UsageError(f"--finish {path}: {error.strerror}; correct that and run it again") from error
    print(f"{path}: {count} records in order of arrival")
    return 0


def _report(recorded: Recorded, *, as_json: bool) -> None:
    account = recorded.account
    if as_json:
        print(jsonlib.dumps({**dataclasses.asdict(account), "notes": recorded.notes}, indent=2))
        return
    files = ", ".join(account.files) or "no file: nothing was recorded"
    print(f"{account.stored} requests recorded: {files}")
    for note in recorded.notes:
        print(f"  {note}")
