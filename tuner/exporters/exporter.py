"""What an exporter is: a name, a file and a pure function."""

from collections.abc import Callable
from dataclasses import dataclass

from tuner.records import Provenance, Recommendation


@dataclass(frozen=True, slots=True)
class Exporter:
    """One way to hand a recommended configuration to a deployment.

    Attributes:
        name: What `tune export --format` calls it: lower case, digits and dashes.
        file_name: The file that a study writes it to.
        summary: What it is for, a few words.
        export: The text of the file. Pure: no clock, no network, no disk.
        with_study: Whether every finished study writes it.
    """

    name: str
    file_name: str
    summary: str
    export: Callable[[Recommendation, Provenance], str]
    with_study: bool = False
