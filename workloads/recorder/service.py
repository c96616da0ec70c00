"""A recording from its start to its end: writer, listening socket, signals, and what is said of it."""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass

import uvloop
from aiohttp import web

from workloads.recorder.channel import Account, Channel
from workloads.recorder.proxy import HEADER_BYTES, HEADERS, Proxy
from workloads.recorder.redaction import what_it_is_worth
from workloads.recorder.settings import RecordError, RecordSettings


@dataclass(frozen=True, slots=True)
class Recorded:
    """The end of a recording.

    Attributes:
        account: What became of the exchanges.
        notes: Sentences that whoever uses the files must know.
    """

    account: Account
    notes: tuple[str, ...]


def record(settings: RecordSettings, say: Callable[[str], None]) -> Recorded:
    """Record until SIGINT or SIGTERM.

    Args:
        settings: What to do.
        say: Gets sentences on how it goes; the first one is said when requests are taken.

    Raises:
        RecordError: it cannot start: the address, the file.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_record(settings, say))


async def _record(settings: RecordSettings, say: Callable[[str], None]) -> Recorded:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    channel = await Channel.start(settings, say)
    proxy = Proxy(settings, channel.send)
    serving = web.AppRunner(
        proxy.app(),
        access_log=None,
        logger=_quiet_log(say),
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=settings.grace_s / 2,  # aiohttp waits so long twice: before it cancels and after
        max_line_size=HEADER_BYTES,
        max_field_size=HEADER_BYTES,
        max_headers=HEADERS,
    )
    try:
        await serving.setup()
        await _listen(serving, settings)
        host, port = serving.addresses[0][:2]
        shown = f"[{host}]" if ":" in host else host
        say(f"recording what passes from http://{shown}:{port} to {settings.root} into {settings.out}; Ctrl-C ends it")
        await stop.wait()
    finally:
        proxy.stopping = True
        await serving.cleanup()
        await proxy.idle()
        await channel.close()
    return Recorded(channel.account, tuple(_notes(settings, channel.account, proxy.unrecorded)))


def _quiet_log(say: Callable[[str], None]) -> logging.Logger:
    """What aiohttp logs of a request that it cannot read quotes its bytes, credentials too; only the kind is said."""

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else record.levelname
            say(f"a request could not be handled ({kind}); its client was told")

    log = logging.getLogger("workloads.recorder")
    log.propagate = False
    log.handlers = [Said(logging.WARNING)]
    return log


async def _listen(serving: web.AppRunner, settings: RecordSettings) -> None:
    try:
        await web.TCPSite(serving, settings.host, settings.port, reuse_address=True).start()
    except OSError as error:
        reason = "the address is in use" if "in use" in str(error) else str(error)
        raise RecordError(
            f"--listen {settings.host}:{settings.port}: {reason}; choose another address or stop what listens there"
        ) from None


def _notes(settings: RecordSettings, account: Account, unrecorded: int) -> list[str]:
    notes = [f"{count} not stored: {reason}" for reason, count in sorted(account.left_out.items())]
    if unrecorded:
        notes.append(f"{unrecorded} not stored: the body is longer than 64 MiB")
    if account.unwritten:
        notes.append(f"{account.unwritten} lost: the file could not be written (see above)")
    if account.dropped:
        notes.append(f"{account.dropped} lost: the writer was behind or had ended (see above)")
    worth = what_it_is_worth(settings.redact, account.replaced, account.replaced_share)
    return [*notes, worth] if worth and account.stored else notes
