"""Seconds by activity: they add up to the whole, and what belongs to nobody is the tuner's."""

import time

import pytest

from tuner.breakdown import ENGINE_START, REPLAY, TUNER, Breakdown


def test_activities_add_up_and_the_rest_is_the_tuner_s() -> None:
    breakdown = Breakdown()
    with breakdown.activity(REPLAY):
        time.sleep(0.03)
    with breakdown.activity(REPLAY):
        time.sleep(0.03)
    time.sleep(0.02)
    shares = breakdown.shares()
    assert shares[REPLAY][0] >= 0.06
    assert shares[TUNER][0] >= 0.02
    assert shares[ENGINE_START][0] == 0.0
    assert sum(seconds for seconds, _ in shares.values()) == pytest.approx(breakdown.total_s, abs=0.05)
    assert sum(share for _, share in shares.values()) == pytest.approx(1.0)
    assert list(shares)[-1] == TUNER


def test_an_activity_that_fails_is_counted_too() -> None:
    breakdown = Breakdown()
    with pytest.raises(RuntimeError), breakdown.activity(REPLAY):
        _sleep_and_fail()
    assert breakdown.seconds[REPLAY] >= 0.01


def _sleep_and_fail() -> None:
    time.sleep(0.01)
    raise RuntimeError
