"""What each command does once its options are parsed. Prints; decides nothing that another module could decide."""

import asyncio
import json
import re
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from tuner.config import TuneConfig
from tuner.console import Narrator, summary_markdown
from tuner.errors import StudyError, StudyInterrupted, UsageError
from tuner.exporters import EXPORTERS
from tuner.objective import parse_objective
from tuner.plan import make_plan
from tuner.records import Recommendation
from tuner.session import tune
from tuner.store import Store
from workloads import read_workload, split_profiles


def run_tune(config: TuneConfig, *, dry_run: bool, as_json: bool) -> int:
    """`tune --workload F`."""
    if dry_run:
        plan = make_plan(config)
        narrator = Narrator()
        narrator.plan(plan)
        narrator.refused(plan.space.refused())
        return 0
    return _run_study(config, resume=False, as_json=as_json)


def run_resume(study: str, *, out: Path, as_json: bool) -> int:
    """`tune resume STUDY`."""
    config = Store.open(out, study).config().model_copy(update={"out": out})
    return _run_study(config, resume=True, as_json=as_json)


def run_inspect(workload: Path, *, profile_by: str, max_bad_share: float, as_json: bool) -> int:
    """`tune inspect F`."""
    found = read_workload(workload, max_bad_share=max_bad_share)
    profiles = split_profiles(found, profile_by)
    summaries = {profile.name: profile.summary().model_dump(mode="json") for profile in profiles}
    if as_json:
        rejected = [{"line": r.line, "reason": r.reason} for r in found.rejected]
        document = {"format": found.format, "digest": found.digest, "profiles": summaries, "rejected": rejected}
        print(json.dumps(document, indent=2, default=str))
        return 0
    narrator = Narrator()
    narrator.line(f"{found.path}: {found.format} format, {len(found.requests)} requests, {found.digest[:19]}")
    for name, summary in summaries.items():
        narrator.line(f"profile {name}")
        for field, value in summary.items():
            if field != "name":
                narrator.line(f"  {field}: {_shown(value)}")
    for line in found.rejected:
        narrator.line(f"rejected line {line.line}: {line.reason}")
    return 0


def run_list(out: Path, *, as_json: bool) -> int:
    """`tune list`."""
    rows = []
    for file in sorted(out.glob("*/study.json")):
        store = Store(file.parent)
        answers = store.recommendations()
        rows.append(
            {
                "study": file.parent.name,
                "trials": len(store.records()),
                "state": "finished" if answers else "unfinished",
                "recommended": {a.condition: a.serve_config.label() for a in answers},
            }
        )
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    narrator = Narrator()
    for row in rows:
        narrator.line(f"{row['study']}: {row['state']}, {row['trials']} trials")
    if not rows:
        narrator.line(f"no studies in {out}")
    return 0


def run_show(study: str, *, out: Path, as_json: bool) -> int:
    """`tune show STUDY`."""
    store = Store.open(out, study)
    answers, records = store.recommendations(), store.records()
    if as_json:
        document = {
            "recommendations": [a.model_dump(mode="json") for a in answers],
            "trials": [r.model_dump(mode="json") for r in records],
        }
        print(json.dumps(document, indent=2))
        return 0
    narrator = Narrator()
    narrator.trials(records, parse_objective(store.config().objective).metric)
    if answers:
        narrator.recommendations(answers)
    else:
        narrator.line(f"not finished; go on with `tune resume {study} --out {out}`")
    return 0


def run_export(
    study: str, *, out: Path, format_name: str, profile: str | None, to: Path | None, allow_simulated: bool
) -> int:
    """`tune export STUDY`."""
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
    text = EXPORTERS[format_name][1](answer, provenance)
    if to is None:
        sys.stdout.write(text)
    else:
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--to {to}: {error.strerror}; choose another file") from error
    return 0


def run_sync(study: str, *, out: Path) -> int:
    """`tune sync STUDY`."""
    from tuner.tracking import MlflowTracker, default_tracking_uri

    store = Store.open(out, study)
    config = store.config().model_copy(update={"out": out})
    provenance = store.provenance()
    if provenance is None:
        raise StudyError(f"study {study!r} has measured nothing yet")
    uri = config.tracking_uri or default_tracking_uri(out)
    tracker = MlflowTracker(uri, make_plan(config), store)
    try:
        tracker.open(provenance)
        for record in store.records():
            tracker.log_trial(record)
        answers = store.recommendations()
        if answers:
            tracker.close(answers, summary_markdown(answers))
    except Exception as error:
        raise StudyError(
            f"MLflow at {uri}: {error}; start it or correct --tracking-uri, then run `tune sync` again"
        ) from error
    Narrator().line(f"{len(store.records())} trials are in {uri}")
    return 0


def new_study_name(workload: Path) -> str:
    """A name that sorts by time."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", workload.stem).strip("-._") or "study"
    return f"{stem[:60]}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"


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


def _run_study(config: TuneConfig, *, resume: bool, as_json: bool) -> int:
    answers = uvloop.run(_until_signal(config, resume=resume, quiet=as_json))
    if as_json:
        print(json.dumps([a.model_dump(mode="json") for a in answers], indent=2))
    return 0


async def _until_signal(config: TuneConfig, *, resume: bool, quiet: bool) -> list[Recommendation]:
    """Ctrl-C and SIGTERM stop the study in order: requests are cancelled and the engine is ended before we leave."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    received: list[str] = []

    def stop(name: str) -> None:
        if task is not None and not received:
            received.append(name)
            print(f"tune: {name} received, ending the engine ...", file=sys.stderr)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, signal.Signals(number).name)
    try:
        return await tune(config, resume=resume, narrator=Narrator(quiet=quiet))
    except asyncio.CancelledError:
        if not received:
            raise
        raise StudyInterrupted(
            f"stopped by {received[0]}; go on with `tune resume {config.study} --out {config.out}`"
        ) from None


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


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
