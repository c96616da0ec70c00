"""What every workload format must do, as a test class to inherit: ours pass it, and so must a third party's.

Set the class attributes in a subclass whose name starts with `Test` and let pytest collect it. Imports no test library.
"""
# These are tests, shipped so that formats outside this project can be held to them: they assert (S101), and their names
# describe them (D102).
# ruff: noqa: D102, S101

import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from workloads.errors import WorkloadFormatError
from workloads.formats import Format, Reading
from workloads.formats.clock import settle
from workloads.formats.framing import records, tell_framing
from workloads.formats.native import native_line
from workloads.formats.source import DigestingFile, open_text
from workloads.read import read_workload
from workloads.request import ENDPOINTS, Request, Workload


class FormatContract:
    """Properties of a format.

    Attributes:
        format: The format under test.
        sample: A file of it, with at least two requests.
        broken: The same file with one record that is no usable request.
        broken_line: Its line.
        reason: Parts of the reason that must be given for it: field, value and remedy.
        foreign: Files of other formats, which it must not claim.
        text_bearing: Whether all prompts of the sample are text.
    """

    format: ClassVar[Format]
    sample: ClassVar[Path]
    broken: ClassVar[Path]
    broken_line: ClassVar[int]
    reason: ClassVar[Sequence[str]]
    foreign: ClassVar[Sequence[Path]] = ()
    text_bearing: ClassVar[bool] = True

    def test_its_name_is_one_lower_case_word(self) -> None:
        assert self.format.name.isidentifier()
        assert self.format.name == self.format.name.lower()

    def test_it_recognises_its_own_records(self) -> None:
        good = records_of(self.sample)
        assert self.format.recognises(good)
        assert self.format.recognises([{"unrelated": 1}, *good])

    def test_it_claims_no_foreign_file(self) -> None:
        assert [path.name for path in self.foreign if self.format.recognises(records_of(path))] == []
        assert not self.format.recognises([])

    def test_all_of_its_sample_is_read(self) -> None:
        workload = self._read(self.sample)
        assert len(workload.requests) > 1
        assert workload.rejected == ()
        assert len({request.id for request in workload.requests}) == len(workload.requests)
        assert {request.endpoint for request in workload.requests} <= set(ENDPOINTS)
        assert workload.text_bearing == self.text_bearing

    def test_times_count_from_the_first_request_and_never_decrease(self) -> None:
        offsets_s = [request.offset_s for request in self._read(self.sample).requests]
        known = [offset_s for offset_s in offsets_s if offset_s is not None]
        assert len(known) in {0, len(offsets_s)}
        assert known == sorted(known)
        assert not known or known[0] == 0

    def test_reading_leaves_records_as_they_were_and_gives_the_same_again(self) -> None:
        good = records_of(self.sample)
        before = copy.deepcopy(good)
        clock, _ = settle(self.format.times(good), None, "the sample")
        reading = Reading(clock=clock)
        for line, record in enumerate(good, start=1):
            list(self.format.requests(record, line, reading))
        assert before == good
        assert self._read(self.sample) == self._read(self.sample)

    def test_nothing_is_lost_on_the_way_to_native_and_back(self, tmp_path: Path) -> None:
        requests = self._read(self.sample).requests
        native = tmp_path / "native.jsonl"
        native.write_bytes(b"".join(map(native_line, requests)))
        assert [_unplaced(request) for request in read_workload(native, format="native").requests] == [
            _unplaced(request) for request in requests
        ]

    def test_a_broken_record_is_refused_with_its_line_field_value_and_remedy(self) -> None:
        workload = self._read(self.broken, max_bad_share=0.9)
        assert [rejected.line for rejected in workload.rejected] == [self.broken_line]
        said = workload.rejected[0].reason
        assert [part for part in self.reason if part not in said] == [], said

    def test_bad_records_beyond_the_allowed_share_stop_the_reading(self) -> None:
        said = ""
        try:
            self._read(self.broken, max_bad_share=0.0)
        except WorkloadFormatError as error:
            said = str(error)
        assert f"{self.broken}:{self.broken_line}: " in said

    def _read(self, path: Path, max_bad_share: float = 0.0) -> Workload:
        return read_workload(path, format=self.format, max_bad_share=max_bad_share)


@functools.cache
def records_of(path: Path) -> list[Mapping[str, Any]]:
    """The good records of a file, however they follow each other."""
    with DigestingFile(path.open("rb", buffering=0)) as file:
        text = open_text(path, file)
        return [record for _, record in records(text, tell_framing(text)) if isinstance(record, dict)]


def _unplaced(request: Request) -> Request:
    """A request without what is about the file it came from."""
    return dataclasses.replace(request, line=0)
