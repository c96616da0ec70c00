"""When each request of a measurement was sent and answered: what a timeline and a latency curve are drawn from.

Kept beside the measurement, in columns, because a measurement may have ten thousand requests. No text and no request id
is in here.
"""

from collections.abc import Iterable

from pydantic import Field

from tuner.records import Strict
from workloads import ReplayResult

# A tenth of a millisecond: finer than a client's clock is true, short enough to keep.
DIGITS = 4


class RequestTimes(Strict):
    """One measurement's requests, one position each in every column. Times are seconds since the replay's start."""

    condition: str = Field(description="key of the condition")
    block: tuple[int, ...] = Field(description="paired block")
    sent_s: tuple[float | None, ...] = Field(description="when the client began to send it; None if it never did")
    first_token_s: tuple[float | None, ...] = Field(description="first event with tokens; None without any")
    last_token_s: tuple[float | None, ...] = Field(description="last event with tokens; None without any")
    end_s: tuple[float, ...] = Field(description="end of the stream, or of the attempt")
    prompt_tokens: tuple[int | None, ...] = Field(description="as the server counts; None where it does not say")
    cached_tokens: tuple[int | None, ...] = Field(description="of those, from the prefix cache")
    completion_tokens: tuple[int, ...] = Field(description="as the server counts")
    error: tuple[str | None, ...] = Field(description="failure class; None on success")


def request_times(condition: str, result: ReplayResult) -> RequestTimes:
    """What a replay observed of each request, in the order of their sending."""
    outcomes = sorted(result.outcomes, key=lambda o: o.end_s if o.sent_s is None else o.sent_s)
    return RequestTimes(
        condition=condition,
        block=tuple(o.block for o in outcomes),
        sent_s=_rounded(o.sent_s for o in outcomes),
        first_token_s=_rounded(o.first_token_s for o in outcomes),
        last_token_s=_rounded(o.chunk_s[-1] if o.chunk_s else None for o in outcomes),
        end_s=tuple(round(o.end_s, DIGITS) for o in outcomes),
        prompt_tokens=tuple(o.prompt_tokens for o in outcomes),
        cached_tokens=tuple(o.cached_tokens for o in outcomes),
        completion_tokens=tuple(o.completion_tokens for o in outcomes),
        error=tuple(o.error for o in outcomes),
    )


def _rounded(values: Iterable[float | None]) -> tuple[float | None, ...]:
    return tuple(None if value is None else round(value, DIGITS) for value in values)
