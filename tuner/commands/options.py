"""Options that several commands share, and the parsing of option values. Imports nothing heavy."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner.errors import UsageError

OUT = Path("runs")

Out = Annotated[Path, Parameter(help="Directory of studies.")]
StudyName = Annotated[str, Parameter(help="Name of the study.")]
Json = Annotated[bool, Parameter(help="Print JSON instead of tables.")]
Debug = Annotated[bool, Parameter(help="Show the traceback of an error.")]
WorkloadFile = Annotated[Path, Parameter(help="Recorded traffic: a file in a known format, also packed.")]
WorkloadFormat = Annotated[str | None, Parameter(help="Format of the workload; told from its content by default.")]
TimeUnit = Annotated[
    str | None, Parameter(help="Unit of the workload's times, where it is not clear: s, ms, us, ns or iso.")
]
Responses = Annotated[Path | None, Parameter(help="Output file of an OpenAI batch, to join with the batch's input.")]
MaxBadShare = Annotated[float, Parameter(help="Share of unreadable workload lines that is tolerated.")]
ProfileBy = Annotated[
    str,
    Parameter(help="What names a profile: route, model, session, tag:KEY, none, or auto to tell kinds by themselves."),
]
Sample = Annotated[int | None, Parameter(help="Keep about so many requests: sessions whole, bursts and sharing kept.")]
ClientProcesses = Annotated[int, Parameter(help="Processes that the replay sends from; for loads beyond one core.")]


def parse_duration(option: str, text: str) -> float:
    """Seconds of "90s", "45m", "2h" or "1.5h".

    Raises:
        UsageError: not such a duration.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|h)\s*", text)
    if not match or float(match[1]) <= 0:
        raise UsageError(f"{option} {text!r} is not a duration such as 90s, 45m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def parse_env(pairs: list[str]) -> dict[str, str]:
    """KEY=VALUE pairs.

    Raises:
        UsageError: one is not of that form.
    """
    env = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"--engine-env {pair!r} is not KEY=VALUE")
        if re.search(r"TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL", name, re.IGNORECASE):
            raise UsageError(
                f"--engine-env {name}=... would be written into exports and MLflow; set it in the environment of "
                "tune itself, the engine inherits it"
            )
        env[name] = value
    return env


def absolute_model(model: str) -> str:
    """A local directory is made absolute, because engines start in directories of their own; a hub id stays."""
    path = Path(model).expanduser()
    return str(path.absolute()) if path.exists() else model
