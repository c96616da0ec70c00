"""What makes measurements on some traffic worth less than they look, each in a sentence with its remedy.

Judged from the numbers of requests. What is wrong with single lines is said where they are read.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from workloads.clustering import FEWEST_SESSIONS
from workloads.columns import Bools, Numbers

REPEATED_SHARE = 0.2
"""Share of repeated prompts from which on acceptance and hit rate are those of the repetition."""


def problems(numbers: Numbers, profiles: Mapping[str, Bools], text_bearing: bool) -> Iterator[str]:
    """The problems of a traffic, gravest first."""
    if not text_bearing:
        yield (
            "prompts are made from lengths, not recorded: arrivals, lengths and prefix sharing can be tuned on them, "
            "acceptance, and so K, cannot"
        )
    yield from _of_recording(numbers)
    yield from _of_sessions(numbers)
    for name, chosen in profiles.items():
        sessions = len(np.unique(numbers.session[chosen]))
        if sessions < FEWEST_SESSIONS:
            yield (
                f'profile "{name}" has {sessions} sessions; searching and confirming in four blocks each needs '
                f"{FEWEST_SESSIONS}: record more of it, or divide more coarsely with --profile-by"
            )


def _of_recording(numbers: Numbers) -> Iterator[str]:
    total = len(numbers)
    if np.isnan(numbers.offset_s).any():
        yield "no arrival times: recorded time cannot be replayed, use --load concurrency=N or rate=R"
    estimated = int((~numbers.prompt_known).sum())
    if estimated:
        yield (
            f"{estimated} of {total} requests have no recorded prompt tokens: theirs are estimated at 4 characters a "
            "token, which is off by up to a factor of 3 for scripts other than Latin"
        )
    silent = int(np.isnan(numbers.output_tokens).sum())
    if silent:
        yield f"{silent} of {total} requests have no recorded output length: blocks are balanced by their limits"
    unlimited = int(np.isnan(numbers.max_tokens).sum())
    if unlimited:
        yield (
            f"{unlimited} of {total} requests have no limit on generated tokens: a model that does not stop runs to "
            "the end of its context"
        )
    failed = int(numbers.has("failed").sum())
    if failed:
        yield f"{failed} of {total} requests failed when they were recorded: leave them out unless they are to be sent"
    repeated = total - len(np.unique(numbers.prompt_hash))
    if repeated >= REPEATED_SHARE * total:
        yield (
            f"{repeated} of {total} prompts are repeats of an earlier one: hit rate, and acceptance at temperature 0, "
            "will be those of the repetition"
        )


def _of_sessions(numbers: Numbers) -> Iterator[str]:
    named = numbers.has("in_session")
    sessions, counts = np.unique(numbers.session[named], return_counts=True)
    if not named.any():
        yield "no sessions: every request is sent as a conversation of its own, without think time"
    elif (counts == 1).all():
        yield (
            f"all {len(sessions)} sessions have one request: their field holds a request id rather than a "
            "conversation's, or conversations were cut"
        )
