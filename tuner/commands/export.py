"""`tune export STUDY`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tuner.commands.options import OUT, Debug, Out, StudyName
from tuner.errors import StudyError, UsageError
from tuner.exporters import EXPORTERS
from tuner.records import Recommendation
from tuner.store import Store


def export(
    study: StudyName,
    *,
    format: Annotated[Literal["yaml", "sh", "json"], Parameter(help="What to write.")] = "yaml",  # noqa: A002 - the option's name
    profile: Annotated[str | None, Parameter(help="Condition to export; may be left out when there is one.")] = None,
    to: Annotated[Path | None, Parameter(help="File to write; standard output by default.")] = None,
    allow_simulated: Annotated[bool, Parameter(help="Export what a simulated engine recommended.")] = False,
    out: Out = OUT,
    debug: Debug = False,
) -> int:
    """Write a recommended serve configuration."""
    del debug
    store = Store.open(out, study)
    answer = _choose(store.recommendations(), profile, study)
    if answer.simulated and not allow_simulated:
        raise UsageError(
            f"study {study!r} ran on the simulated engine, so its answer is no measurement; "
            "--allow-simulated exports it, marked as simulated"
        )
    provenance = store.provenance()
    if provenance is None:
        raise StudyError(f"study {study!r} has no provenance.json; it is damaged")
    text = EXPORTERS[format][1](answer, provenance)
    if to is None:
        sys.stdout.write(text)
    else:
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--to {to}: {error.strerror}; choose another file") from error
    return 0


def _choose(answers: list[Recommendation], profile: str | None, study: str) -> Recommendation:
    names = ", ".join(a.condition for a in answers)
    if not answers:
        raise StudyError(f"study {study!r} has no recommendation yet; finish it with `tune resume {study}`")
    chosen = [a for a in answers if profile is None or a.condition == profile]
    if not chosen:
        raise UsageError(f"--profile {profile!r}: study {study!r} has {names}")
    if len({a.serve_config.id for a in chosen}) > 1:
        raise UsageError(f"study {study!r} recommends different configurations; choose with --profile: {names}")
    return chosen[0]
