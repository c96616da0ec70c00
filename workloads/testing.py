"""What every workload format must do, as a test class to inherit: ours pass it, and so must a third party's.

Set the class attributes in a subclass whose name starts with `Test` and let pytest collect it. Imports no test library.
"""
# These are tests, shipped so that formats outside this project can be held to them: they assert (S101), their names
# describe them (D102), and they do without pytest, which users do not have (PT017).
# ruff: noqa: D102, PT017, S101

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from workloads.errors import LineError
from workloads.formats import Format, Reading
from workloads.request import ENDPOINTS, Request


class FormatContract:
    """Properties of a format.

    Attributes:
        format: The format under test.
        good: Records of it, as parsed from lines of a real file, with different ids.
        bad: Records of it that are no usable request, by a fragment of the reason that must be given.
        foreign: Records of other formats, which it must not claim.
    """

    format: ClassVar[Format]
    good: ClassVar[Sequence[Mapping[str, Any]]]
    bad: ClassVar[Mapping[str, Mapping[str, Any]]]
    foreign: ClassVar[Sequence[Mapping[str, Any]]]

    def test_its_name_is_one_lower_case_word(self) -> None:
        assert self.format.name.isidentifier()
        assert self.format.name == self.format.name.lower()

    def test_it_recognises_its_own_records(self) -> None:
        assert self.format.recognises(self.good)

    def test_it_recognises_them_behind_a_record_that_is_none(self) -> None:
        assert self.format.recognises([{"unrelated": 1}, *self.good])

    def test_it_claims_no_foreign_record(self) -> None:
        assert not [record for record in self.foreign if self.format.recognises([record])]
        assert not self.format.recognises([])

    def test_requests_are_complete(self) -> None:
        requests = self._requests()
        assert len({request.id for request in requests}) == len(self.good)
        assert {request.endpoint for request in requests} <= set(ENDPOINTS)
        assert [request.line for request in requests] == list(range(1, len(self.good) + 1))

    def test_reading_leaves_the_record_as_it_was_and_gives_the_same_again(self) -> None:
        before = copy.deepcopy(list(self.good))
        assert self._requests() == self._requests()
        assert before == list(self.good)

    def test_times_count_from_the_first_request(self) -> None:
        offsets_s = [request.offset_s for request in self._requests()]
        assert all(offset_s is None for offset_s in offsets_s) or all(
            offset_s is not None and offset_s >= 0 for offset_s in offsets_s
        )

    def test_a_bad_record_is_refused_with_its_reason(self) -> None:
        for fragment, record in self.bad.items():
            try:
                list(self.format.requests(record, 7, Reading()))
            except LineError as error:
                assert fragment in str(error), f"the reason {str(error)!r} does not say {fragment!r}"
            else:
                raise AssertionError(f"the record that should fail with {fragment!r} was accepted")

    def _requests(self) -> list[Request]:
        reading = Reading()
        return [
            request
            for line, record in enumerate(self.good, start=1)
            for request in self.format.requests(record, line, reading)
        ]
