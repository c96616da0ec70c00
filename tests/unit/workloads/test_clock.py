"""Units of recorded times: told where they can be told, asked for where they cannot."""

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import WorkloadFormatError, read_workload
from workloads.errors import LineError
from workloads.formats.clock import NS_PER_UNIT, TIME_UNITS, Clock, RecordedTimes, TimeUnit, settle

START_S = 1_785_578_400


def trace(folder: Path, *times: object, **fields: object) -> Path:
    path = folder / "trace.jsonl"
    rows = [{"timestamp": time, "input_length": 5, "output_length": 2, **fields} for time in times]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return path


@given(st.sampled_from(["s", "ms", "us", "ns"]), st.lists(st.integers(0, 10**6), min_size=2, max_size=9))
def test_times_since_1970_are_told_by_their_magnitude(unit: TimeUnit, offsets_ms: list[int]) -> None:
    times = [(START_S * 10**9 + offset * 10**6) / NS_PER_UNIT[unit] for offset in sorted(offsets_ms)]
    clock, note = settle(RecordedTimes("t", times), None, "file")
    assert clock.unit == unit
    assert note is not None
    assert "since 1970" in note
    first = clock.offset_s(times[0])
    assert first == 0
    expected_s = (max(offsets_ms) - min(offsets_ms)) / 1000
    assert clock.offset_s(times[-1]) == pytest.approx(expected_s, abs=1e-6 if unit != "ns" else 1e-3)


@pytest.mark.parametrize(("times", "unit"), [((0, 2700, 3100), "milliseconds"), ((0.0, 0.25, 1.5), "seconds")])
def test_relative_times_that_make_sense_in_one_unit_only_are_read_so(
    tmp_path: Path, times: tuple[float, ...], unit: str
) -> None:
    workload = read_workload(trace(tmp_path, *times))
    assert workload.notes == (f'times ("timestamp") read as {unit} since the first request',)


def test_relative_times_that_make_sense_in_two_units_are_asked_for(tmp_path: Path) -> None:
    path = trace(tmp_path, 0, 20, 40)
    with pytest.raises(
        WorkloadFormatError, match=r"unit of \"timestamp\" \(0, 20, 40 \.\.\.\) is not clear; .*--time-unit"
    ):
        read_workload(path)
    assert [request.offset_s for request in read_workload(path, time_unit="s").requests] == [0, 20, 40]
    assert [request.offset_s for request in read_workload(path, time_unit="ms").requests] == [0, 0.02, 0.04]


def test_a_documented_unit_that_makes_no_sense_is_not_believed(tmp_path: Path) -> None:
    path = trace(tmp_path, 0.0, 0.1, 0.3, hash_ids=[1])
    with pytest.raises(
        WorkloadFormatError, match="not clear, though the format says milliseconds; say it with --time-unit"
    ):
        read_workload(path)
    assert read_workload(path, time_unit="s").requests[-1].offset_s == pytest.approx(0.3)


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFormatError, match=f"it is one of {', '.join(TIME_UNITS)}"):
        read_workload(trace(tmp_path, 0, 1), time_unit="minutes")


def test_a_burst_at_one_instant_keeps_the_documented_unit(tmp_path: Path) -> None:
    assert (
        read_workload(trace(tmp_path, 0, 0, 0, hash_ids=[1])).notes[0].endswith("milliseconds since the first request")
    )


@pytest.mark.parametrize("value", ["2026-08-01T10:00:01Z", "2026-08-01 10:00:01.0000000", "2026-08-01T12:00:01+02:00"])
def test_dates_are_read_with_zone_or_without(value: str) -> None:
    clock = Clock("iso")
    clock.offset_s("2026-08-01T10:00:00Z")
    assert clock.offset_s(value) == 1.0


@pytest.mark.parametrize(("unit", "value"), [("s", "soon"), ("ms", True), ("ns", None), ("iso", 5), ("iso", "1 May")])
def test_what_is_no_time_is_a_bad_record(unit: TimeUnit, value: object) -> None:
    with pytest.raises(LineError, match=r'"timestamp" is .*; it must be a '):
        Clock(unit).offset_s(value)
