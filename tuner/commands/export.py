"""`tune export STUDY`."""

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner.commands.options import OUT, Debug, Out
from tuner.errors import StudyError, UsageError
from tuner.exporters import BUILT_IN, EXPORTERS
from tuner.exporters.tuning_job import TUNING_JOBS
from tuner.records import Provenance, Recommendation
from tuner.store import Store

DRAFT_TRAINING = "draft-training"
FORMATS_HELP = (
    f"One of {', '.join([*(known.name for known in BUILT_IN), *TUNING_JOBS])}, or of an installed plugin; "
    f"{DRAFT_TRAINING} writes the recorded prompts for fine-tuning the draft into the directory --to."
)


def export(
    study: Annotated[str | None, Parameter(help="Name of the study.")] = None,
    *,
    format: Annotated[str, Parameter(help=FORMATS_HELP)] = "yaml",  # noqa: A002 - the option's name
    profile: Annotated[str | None, Parameter(help="Condition to export; may be left out when there is one.")] = None,
    to: Annotated[Path | None, Parameter(help="File to write; standard output by default.")] = None,
    image: Annotated[str | None, Parameter(help="Container image; that of the measured release by default.")] = None,
    allow_simulated: Annotated[bool, Parameter(help="Export what a simulated engine recommended.")] = False,
    from_mlflow: Annotated[
        str | None, Parameter(help="Instead of a study: id of its parent run, or models:/NAME@recommended.")
    ] = None,
    tracking_uri: Annotated[
        str | None, Parameter(help="Where MLflow is; MLFLOW_TRACKING_URI, else --out, by default.")
    ] = None,
    out: Out = OUT,
    debug: Debug = False,
) -> int:
    """Write a recommended serve configuration, or a job that runs the study elsewhere."""
    del debug
    known = [*EXPORTERS, *TUNING_JOBS, DRAFT_TRAINING]
    if format not in known:
        raise UsageError(f"--format {format!r} is unknown; it is one of {', '.join(known)}")
    if (study is None) == (from_mlflow is None):
        raise UsageError("name either a STUDY or --from-mlflow RUN")
    if format in TUNING_JOBS:
        _write(_job(study, out, format, image), to)
        return 0
    if format == DRAFT_TRAINING:
        _prompts(study, out, to)
        return 0
    found = _of_run(from_mlflow, tracking_uri, out) if from_mlflow else _of_study(study or "", out)
    source = f"study {study!r}" if study else f"MLflow's {from_mlflow}"
    answer, provenance = _choose(found, profile, source)
    if answer.simulated and not allow_simulated:
        raise UsageError(
            f"{source} ran on the simulated engine, so its answer is no measurement; "
            "--allow-simulated exports it, marked as simulated"
        )
    if image:
        provenance = provenance.model_copy(update={"engine_image": image})
    _write(EXPORTERS[format].export(answer, provenance), to)
    return 0


def _write(text: str, to: Path | None) -> None:
    if to is None:
        sys.stdout.write(text)
        return
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--to {to}: {error.strerror}; choose another file") from error


def _prompts(study: str | None, out: Path, to: Path | None) -> None:
    """Prompts leave the study: only where a directory is named for them."""
    if study is None or to is None:
        raise UsageError(f"--format {DRAFT_TRAINING} needs the STUDY and --to DIRECTORY")
    from tuner.exporters.draft_training import export_draft_training

    written = export_draft_training(Store.open(out, study), to)
    for reason, count in written.left_out.items():
        print(f"left out    {count} requests: {reason}")
    print(f"prompts     {written.rows} in {to}; {to}/README.md has the commands and what it would bring")


def _job(study: str | None, out: Path, format: str, image: str | None) -> str:  # noqa: A002 - as export
    """A manifest that asks for the study again; it needs no answer yet."""
    if study is None:
        raise UsageError(f"--format {format} is made of a study's own request; name the STUDY")
    store = Store.open(out, study)
    provenance = store.provenance()
    if provenance is None:
        raise StudyError(f"study {study!r} has not begun: it has no provenance.json; start it, if only for a moment")
    return TUNING_JOBS[format](store.config(), provenance, image)


def _of_study(study: str, out: Path) -> list[tuple[Recommendation, Provenance]]:
    store = Store.open(out, study)
    answers, provenance = store.recommendations(), store.provenance()
    if not answers:
        raise StudyError(f"study {study!r} has no recommendation yet; finish it with `tune resume {study}`")
    if provenance is None:
        raise StudyError(f"study {study!r} has no provenance.json; it is damaged")
    provenance = provenance.model_copy(update={"study": study, "run": _run_of(store)})
    return [(answer, provenance) for answer in answers]


def _run_of(store: Store) -> str | None:
    """The study's MLflow run, where it was tracked."""
    path = store.directory / "mlflow.json"
    if not path.is_file():
        return None
    run = json.loads(path.read_text(encoding="utf-8")).get("parent")
    return str(run) if run else None


def _of_run(run: str, asked: str | None, out: Path) -> list[tuple[Recommendation, Provenance]]:
    from tuner.tracking import fetch_recommendations
    from tuner.tracking_uri import tracking_uri

    return fetch_recommendations(run, tracking_uri(asked, out))


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
