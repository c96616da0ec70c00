"""What must hold between the requests of a file: ids differ, all are timed or none, and time does not run backwards."""

from dataclasses import dataclass, field

from workloads.request import Request


@dataclass(slots=True)
class SequenceRules:
    """What must hold between requests, checked with what is known of the earlier ones."""

    line_of_id: dict[str, int] = field(default_factory=dict)
    first_line: int = 0
    timed: bool = False
    latest_s: float = 0.0
    latest_line: int = 0

    def refusal(self, request: Request) -> str | None:
        """Why a request does not go together with the good ones before it; None if it does, and then it is one."""
        offset_s = request.offset_s
        line = self.line_of_id.get(request.id)
        if line is not None:
            return f'the id "{request.id}" is that of line {line}; ids must differ'
        if not self.line_of_id:
            self.first_line, self.timed = request.line, offset_s is not None
        elif self.timed != (offset_s is not None):
            has, other = ("no", "has one") if offset_s is None else ("a", "has none")
            return f"it has {has} timestamp while line {self.first_line} {other}; time all requests or none"
        if offset_s is not None:
            if offset_s < self.latest_s and self.line_of_id:
                return (
                    f"its timestamp of {offset_s} s is before the {self.latest_s} s of line {self.latest_line}; "
                    "sort the file by time"
                )
            self.latest_s, self.latest_line = offset_s, request.line
        self.line_of_id[request.id] = request.line
        return None
