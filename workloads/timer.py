"""Waiting until a moment, to a fraction of a millisecond.

Timers of uvloop and asyncio are rounded to 1 ms, which at a few hundred requests a second is most of the lag. Linux'
timerfd has no such limit; one descriptor serves all who wait. Knows nothing of what is waited for.
"""

import asyncio
import ctypes
import heapq
import itertools
import os
from time import perf_counter
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_TFD_TIMER_ABSTIME: Final = 1
_SOON_S: Final = 1e-6


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Timer:
    """Wakes tasks of the running event loop; close it when done. Times are readings of `time.perf_counter`.

    That is CLOCK_MONOTONIC on Linux, the clock of the descriptor.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # os.timerfd_create is there from Python 3.13 on.
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._loop.add_reader(self._fd, self._fire)

    def close(self) -> None:
        """Give the descriptor back; nobody may be waiting."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    async def until(self, moment_s: float) -> None:
        """Return at that moment; at once if it has passed."""
        if moment_s <= perf_counter():
            return
        woken = self._loop.create_future()
        heapq.heappush(self._waiting, (moment_s, next(self._order), woken))
        if self._waiting[0][2] is woken:
            self._arm()
        await woken

    def _arm(self) -> None:
        seconds, fraction = divmod(max(self._waiting[0][0], _SOON_S), 1.0)
        value = _Itimerspec(_Timespec(0, 0), _Timespec(int(seconds), int(fraction * 1e9)))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(value), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        now_s = perf_counter()
        while self._waiting and self._waiting[0][0] <= now_s + _SOON_S:
            woken = heapq.heappop(self._waiting)[2]
            if not woken.done():  # the one who waited may have been cancelled
                woken.set_result(None)
        if self._waiting:
            self._arm()
