"""Waiting to a fraction of a millisecond."""

import asyncio
import os
import random
from time import perf_counter

import pytest

from workloads.timer import Timer


async def test_nobody_wakes_early_and_all_wake_in_order() -> None:
    timer = Timer()
    woken: list[tuple[float, float]] = []

    async def wait(moment_s: float) -> None:
        await timer.until(moment_s)
        woken.append((moment_s, perf_counter()))

    start_s = perf_counter()
    moments_s = [start_s + 0.001 * (number % 50) for number in range(200)]
    random.Random(1).shuffle(moments_s)  # noqa: S311 - an order, not a secret
    await asyncio.gather(*map(wait, moments_s))
    timer.close()
    assert all(at_s >= moment_s - 2e-6 for moment_s, at_s in woken)
    # Those whose moment had passed when they asked did not wait.
    waited = [moment_s for moment_s, _ in woken if moment_s > start_s + 0.02]
    assert len(waited) > 100
    assert waited == sorted(waited)


async def test_a_cancelled_wait_holds_nobody_up_and_the_descriptor_is_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counting descriptors, not walking a tree
    timer = Timer()
    given_up = asyncio.create_task(timer.until(perf_counter() + 0.01))
    kept = asyncio.create_task(timer.until(perf_counter() + 0.02))
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(2):
        await kept
    with pytest.raises(asyncio.CancelledError):
        await given_up
    timer.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


async def test_a_moment_that_has_passed_is_not_waited_for() -> None:
    timer = Timer()
    start_s = perf_counter()
    await timer.until(start_s - 1)
    assert perf_counter() - start_s < 0.5
    timer.close()
