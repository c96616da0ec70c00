"""Values that are lists for the engine but one choice for a search, written as text: capture sizes and K by batch size.

A schedule's rules are those of vLLM's `v1/spec_decode/dynamic/utils.py`.
"""

import re


def parse_integers(text: str) -> list[int]:
    """A list such as "1,2,4,8".

    Raises:
        ValueError: not positive integers, each larger than the one before.
    """
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise ValueError(f"{text!r} is not a list of integers such as 1,2,4,8")
    numbers = [int(part) for part in text.split(",")]
    if numbers[0] < 1 or sorted(set(numbers)) != numbers:
        raise ValueError(f"{text!r} must hold positive integers, each larger than the one before")
    return numbers


def parse_schedule(text: str) -> list[list[int]]:
    """K by batch size, such as "1-8:15,9-32:7,33-256:0": [first, last, K] with both ends included.

    Raises:
        ValueError: malformed, not starting at 1, or ranges that overlap or run back.
    """
    if not re.fullmatch(r"[0-9]+-[0-9]+:[0-9]+(,[0-9]+-[0-9]+:[0-9]+)*", text):
        raise ValueError(f"{text!r} is not a schedule FIRST-LAST:K,... such as 1-8:15,9-32:7,33-256:0")
    steps = [[int(number) for number in re.split("[-:]", part)] for part in text.split(",")]
    expected = 1
    for first, last, _ in steps:
        if first < expected or (expected == 1 and first != 1) or last < first:
            raise ValueError(f"{text!r} must begin at batch size 1, and its ranges must ascend without overlap")
        expected = last + 1
    return steps


def schedule_text(steps: list[tuple[int, int, int]]) -> str:
    """The text of a schedule: the inverse of `parse_schedule`."""
    return ",".join(f"{first}-{last}:{k}" for first, last, k in steps)
