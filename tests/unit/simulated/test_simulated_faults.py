"""SIMULATED_FAULTS: what can be asked for, and that every fault is deterministic."""

import pytest

from runners.simulated.errors import FaultError
from runners.simulated.faults import Faults, parse_faults


def test_nothing_is_wrong_by_default() -> None:
    assert parse_faults("") == Faults()


def test_faults_are_combined() -> None:
    faults = parse_faults("hang_after=3, http_500_rate=0.25,malformed_sse,grandchild,exit_at_start")
    assert (faults.hang_after, faults.http_500_rate, faults.malformed_sse) == (3, 0.25, 1.0)
    assert faults.grandchild
    assert faults.exit_at_start == 1


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        ("max_num_seqs>=256", 256, True),
        ("max_num_seqs>=256", 255, False),
        ("max_num_seqs<2", 1, True),
        ("max_num_seqs==8", 8, True),
        ("max_num_seqs>8", 8, False),
        ("max_num_seqs<=8", 8, True),
    ],
)
def test_rules_compare(rule: str, value: float, expected: bool) -> None:
    (parsed,) = parse_faults(f"oom_if={rule}").oom_if
    assert parsed.matches({"max_num_seqs": value}) == expected


def test_rules_can_be_repeated() -> None:
    faults = parse_faults("oom_if=max_num_seqs>9,oom_if=block_size<16,exit_if=num_speculative_tokens>8")
    assert [rule.name for rule in faults.oom_if] == ["max_num_seqs", "block_size"]
    assert [rule.name for rule in faults.exit_if] == ["num_speculative_tokens"]


@pytest.mark.parametrize(
    "text",
    ["explode", "hang_after", "hang_after=soon", "oom_if=max_num_seqs", "oom_if=price>3", "never_ready=1", "no_done="],
)
def test_what_is_not_a_fault_is_refused_by_name(text: str) -> None:
    with pytest.raises(FaultError, match=r"SIMULATED_FAULTS holds"):
        parse_faults(text)


def test_shares_strike_the_same_requests_every_time_and_independently() -> None:
    faults = Faults()
    hits = [request for request in range(2000) if faults.strikes(0.2, 1, request)]
    assert hits == [request for request in range(2000) if faults.strikes(0.2, 1, request)]
    assert len(hits) == pytest.approx(400, rel=0.15)
    assert hits != [request for request in range(2000) if faults.strikes(0.2, 2, request)]
    assert not any(faults.strikes(0.0, 1, request) for request in range(100))
    assert all(faults.strikes(1.0, 1, request) for request in range(100))
