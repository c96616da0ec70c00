"""Errors of the simulated engine.

SimulatedError
├── CalibrationError   a calibration file that cannot be used (file, key, value, remedy)
├── FaultError         SIMULATED_FAULTS that cannot be understood
└── StartupError       the engine refuses to start, with the log lines that vLLM would print
"""

__all__ = ["CalibrationError", "FaultError", "SimulatedError", "StartupError", "value_error"]


class SimulatedError(Exception):
    """Base of every error of this package."""


class CalibrationError(SimulatedError):
    """A calibration file is missing, broken or holds an impossible value."""


class FaultError(SimulatedError):
    """The environment variable SIMULATED_FAULTS holds a fault that does not exist or a value that it cannot take."""


class StartupError(SimulatedError):
    """The configuration cannot be served.

    Args:
        exception: class name that the log's traceback ends in, e.g. "ValueError" or "torch.OutOfMemoryError".
        message: text after the class name.
        in_engine: whether vLLM would meet it in the engine process (after the API server has started it).
    """

    def __init__(self, exception: str, message: str, *, in_engine: bool = True) -> None:
        super().__init__(f"{exception}: {message}")
        self.exception = exception
        self.message = message
        self.in_engine = in_engine


def value_error(message: str) -> StartupError:
    """A configuration that the API server's own checks refuse."""
    return StartupError("ValueError", message, in_engine=False)
