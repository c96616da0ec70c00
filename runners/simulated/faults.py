"""Faults on demand: the environment variable SIMULATED_FAULTS, a comma list, all of them deterministic.

    exit_at_start[=CODE]    exit before ready (default code 1)
    exit_if=RULE            exit before ready when the configuration matches, e.g. exit_if=num_speculative_tokens>8
    exit_share=SHARE        exit before ready for that share of all configurations, chosen by a hash of the command line
    oom_if=RULE             run out of memory at start when the configuration matches, e.g. oom_if=max_num_seqs>=256
    oom_at=PHASE            run out of memory at start while in that phase: weights, kv or graphs
    slow_start=SECONDS      be ready that much later (wall time)
    never_ready             listen, but answer /health with 503 for ever
    hang_after=N            stop stepping when the Nth request arrives; /health stays 200
    die_after=N             exit in the middle of the Nth request's answer
    http_500_rate=SHARE     answer that share of the requests with 500
    http_503_rate=SHARE     the same with 503
    drop_rate=SHARE         cut the connection in the middle of that share of the answers
    malformed_sse[=SHARE]   send half of a JSON line in that share of the streams (default: all)
    faulty_from=N           the shares above hit only the Nth request and those after it
    no_done                 end streams without [DONE]
    reset_lies              /reset_prefix_cache answers true and does nothing
    wrong_output            under speculation every 16th token of the text is a wrong one
    ignore_sigterm          SIGTERM does nothing
    grandchild              start a sleeping process in a session of its own
    disk_full               fail at start with "No space left on device"

RULE is NAME OP NUMBER with OP one of >= > <= < == and NAME one of RULE_NAMES. Rules are repeated by
repeating the fault. Requests are counted from 1 in order of arrival; /health, /metrics and the like do not count.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runners.simulated.errors import FaultError
from runners.simulated.hashing import uniform

__all__ = ["RULE_NAMES", "Faults", "Rule", "parse_faults"]

RULE_NAMES = (
    "block_size", "enable_prefix_caching", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens",
    "max_num_seqs", "num_speculative_tokens",
)  # fmt: skip

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt, "==": operator.eq,
}  # fmt: skip
_RULE = re.compile(r"([a-z_]+)(>=|<=|==|>|<)([0-9.]+)")
_SWITCHES = ("never_ready", "no_done", "reset_lies", "wrong_output", "ignore_sigterm", "grandchild", "disk_full")
_NUMBERS = (
    "exit_at_start", "exit_share", "slow_start", "hang_after", "die_after", "http_500_rate", "http_503_rate",
    "drop_rate", "malformed_sse", "faulty_from",
)  # fmt: skip
_PHASES = ("weights", "kv", "graphs")
_DEFAULTS = {"exit_at_start": 1.0, "malformed_sse": 1.0}


@dataclass(frozen=True, slots=True)
class Rule:
    """A comparison of one configuration value with a number."""

    name: str
    compare: Callable[[float, float], bool]
    limit: float

    def matches(self, values: Mapping[str, float]) -> bool:
        """Whether the configuration's value (0 when it has none) compares as asked."""
        return self.compare(values.get(self.name, 0.0), self.limit)


@dataclass(frozen=True, slots=True)
class Faults:
    """Parsed faults; see the module for what each does. Zero, False and empty mean that it is off."""

    exit_at_start: float = 0.0
    exit_if: tuple[Rule, ...] = ()
    exit_share: float = 0.0
    oom_if: tuple[Rule, ...] = ()
    oom_at: str = ""
    slow_start: float = 0.0
    never_ready: bool = False
    hang_after: float = 0.0
    die_after: float = 0.0
    http_500_rate: float = 0.0
    http_503_rate: float = 0.0
    drop_rate: float = 0.0
    malformed_sse: float = 0.0
    faulty_from: float = 0.0
    no_done: bool = False
    reset_lies: bool = False
    wrong_output: bool = False
    ignore_sigterm: bool = False
    grandchild: bool = False
    disk_full: bool = False

    def strikes(self, share: float, stream: int, request: int) -> bool:
        """Whether a fault with this share hits the request; `stream` keeps the faults independent."""
        return share > 0 and request >= self.faulty_from and uniform(stream, request) < share


def parse_faults(text: str) -> Faults:
    """Read SIMULATED_FAULTS.

    Raises:
        FaultError: an unknown fault, or a value that it cannot take.
    """
    values: dict[str, object] = {}
    rules: dict[str, list[Rule]] = {"oom_if": [], "exit_if": []}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if name in rules:
            rules[name].append(_rule(name, value))
        elif name == "oom_at" and value in _PHASES:
            values[name] = value
        elif name in _SWITCHES and not equals:
            values[name] = True
        elif name in _NUMBERS and (equals or name in _DEFAULTS):
            values[name] = _number(name, value) if equals else _DEFAULTS[name]
        else:
            known = ", ".join(sorted((*_SWITCHES, *_NUMBERS, *rules, "oom_at=" + "|".join(_PHASES))))
            msg = f"SIMULATED_FAULTS holds {item!r}, which is not a fault: known are {known}"
            raise FaultError(msg)
    return Faults(**values, **{name: tuple(found) for name, found in rules.items()})  # type: ignore[arg-type] # checked above


def _rule(name: str, text: str) -> Rule:
    match = _RULE.fullmatch(text.replace(" ", ""))
    if match is None or match[1] not in RULE_NAMES:
        msg = (
            f"SIMULATED_FAULTS holds {name}={text!r}: write it like {name}=max_num_seqs>=256, with one of "
            f"{', '.join(RULE_NAMES)}"
        )
        raise FaultError(msg)
    return Rule(match[1], _COMPARE[match[2]], float(match[3]))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"SIMULATED_FAULTS holds {name}={text!r}: expected a number"
        raise FaultError(msg) from None
