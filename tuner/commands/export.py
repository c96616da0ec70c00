"""`tune export STUDY`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tuner.commands.options import OUT, Debug, Out
from tuner.errors import StudyError, UsageError
from tuner.exporters import EXPORTERS
from tuner.records import Provenance, Recommendation
from tuner.store import Store


def export(
    study: Annotated[str | None, Parameter(help="Name of the study.")] = None,
    *,
    format: Annotated[Literal["yaml", "sh", "json"], Parameter(help="What to write.")] = "yaml",  # noqa: A002 - the option's name
    profile: Annotated[str | None, Parameter(help="Condition to export; may be left out when there is one.")] = None,
    to: Annotated[Path | None, Parameter(help="File to write; standard output by default.")] = None,
    allow_simulated: Annotated[bool, Parameter(help="Export what a simulated engine recommended.")] = False,
    from_mlflow: Annotated[
        str | None, Parameter(help="Instead of a study: id of its parent run, or models:/NAME@recommended.")
    ] = None,
    tracking_uri: Annotated[str | None, Parameter(help="Where MLflow is; the SQLite file in --out by default.")] = None,
    out: Out = OUT,
    debug: Debug = False,
) -> int:
    """Write a recommended serve configuration."""
    del debug
    if (study is None) == (from_mlflow is None):
        raise UsageError("name either a STUDY or --from-mlflow RUN")
    found = _of_run(from_mlflow, tracking_uri, out) if from_mlflow else _of_study(study or "", out)
    source = f"study {study!r}" if study else f"MLflow's {from_mlflow}"
    answer, provenance = _choose(found, profile, source)
    if answer.simulated and not allow_simulated:
        raise UsageError(
            f"{source} ran on the simulated engine, so its answer is no measurement; "
            "--allow-simulated exports it, marked as simulated"
        )
    text = EXPORTERS[format][1](answer, provenance)
    if to is None:
        sys.stdout.write(text)
    else:
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--to {to}: {error.strerror}; choose another file") from error
    return 0


def _of_study(study: str, out: Path) -> list[tuple[Recommendation, Provenance]]:
    store = Store.open(out, study)
    answers, provenance = store.recommendations(), store.provenance()
    if not answers:
        raise StudyError(f"study {study!r} has no recommendation yet; finish it with `tune resume {study}`")
    if provenance is None:
        raise StudyError(f"study {study!r} has no provenance.json; it is damaged")
    return [(answer, provenance) for answer in answers]


def _of_run(run: str, tracking_uri: str | None, out: Path) -> list[tuple[Recommendation, Provenance]]:
    from tuner.tracking import default_tracking_uri, fetch_recommendations

    return fetch_recommendations(run, tracking_uri or default_tracking_uri(out))


def _choose(
    found: list[tuple[Recommendation, Provenance]], profile: str | None, source: str
) -> tuple[Recommendation, Provenance]:
    names = ", ".join(answer.condition for answer, _ in found)
    chosen = [each for each in found if profile is None or each[0].condition == profile]
    if not chosen:
        raise UsageError(f"--profile {profile!r}: {source} has {names}")
    if len({answer.serve_config.id for answer, _ in chosen}) > 1:
        raise UsageError(f"{source} recommends different configurations; choose with --profile: {names}")
    return chosen[0]
