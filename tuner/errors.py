"""Errors of the tuner and the exit code that each one becomes.

TunerError                        base; exit code 2 unless a subclass says otherwise
├── InvalidMeasurementsError (1)  a condition has no answer, because its measurements were invalid
├── UsageError               (2)  options that contradict each other or name something unknown
├── StudyError               (2)  no such study, a damaged one, or one that another tuner is running
├── NoEngineError            (3)  no engine could be started or kept alive for the baseline
├── StudyInterrupted         (4)  stopped by a signal; `tune resume` goes on
├── SloUnmetError            (5)  nothing that was measured meets the SLO
└── WorseError               (6)  `tune verify`: the configuration is worse than what it was compared with
"""


class TunerError(Exception):
    """Base of every error that ends a command with one sentence."""

    exit_code = 2


class InvalidMeasurementsError(TunerError):
    """A condition has no answer: the baseline's confirmation was never valid."""

    exit_code = 1


class UsageError(TunerError):
    """Options that contradict each other or name something unknown."""


class StudyError(TunerError):
    """A study that does not exist, is damaged, or is being run by another tuner."""


class NoEngineError(TunerError):
    """The baseline's engine could not be started or did not survive its measurements."""

    exit_code = 3


class StudyInterrupted(TunerError):  # noqa: N818 - not an error of the user's or the tuner's making
    """The study was stopped by a signal or a full disk; nothing that was measured is lost."""

    exit_code = 4


class SloUnmetError(TunerError):
    """No measured configuration meets the SLO."""

    exit_code = 5


class WorseError(TunerError):
    """A verified configuration is reliably worse than its reference, or changes its outputs."""

    exit_code = 6
