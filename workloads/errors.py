"""What can be wrong with a workload or with the way it is to be replayed.

    WorkloadError
    ├── WorkloadFileError      the file cannot be read as a whole: missing, a directory, empty, binary
    ├── WorkloadFormatError    the format is unknown, not recognised, or too many lines are bad
    ├── LineError              one record is bad; readers collect these, they reach nobody else
    ├── ProfileError           a profile cannot be made: unknown key, too few sessions
    └── LoadError              a load cannot be read, or not driven with this traffic

What happens to one request on the wire is data (`RequestOutcome.error`), never an exception.
"""


class WorkloadError(Exception):
    """Base of everything that this package raises on purpose."""


class WorkloadFileError(WorkloadError):
    """The file as a whole cannot be read."""


class WorkloadFormatError(WorkloadError):
    """The records are in no format that is known, or too many of them are bad."""


class LineError(WorkloadError):
    """One record is bad; the message says why, without file and line."""


class ProfileError(WorkloadError):
    """The workload cannot be divided as asked."""


class LoadError(WorkloadError):
    """A load is malformed, or the requests lack what it needs."""
