"""The command line: options to a TuneConfig, errors to exit codes. Nothing heavy is imported before it is needed."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from tuner.commands.options import OUT, Debug, Json, Out

app = App(
    name="tune",
    help="Find the vLLM serve configuration with DFlash speculative decoding that is best for your recorded traffic.",
    help_format="plaintext",
    version_flags=["--version"],
    version=lambda: metadata.version("dflash-tuner"),
    default_parameter=Parameter(negative=""),
)


@app.default
def tune(
    *,
    workload: Annotated[Path, Parameter(help="Recorded traffic: a JSONL file.")],
    model: Annotated[str, Parameter(help="Target model: directory or hub id.")],
    draft: Annotated[str | None, Parameter(help="DFlash draft of the model: directory or hub id.")] = None,
    engine_python: Annotated[str | None, Parameter(help="Python of the environment that vLLM is installed in.")] = None,
    engine_command: Annotated[
        str | None, Parameter(help='Command that starts the engine, such as "vllm serve".')
    ] = None,
    engine_version: Annotated[str | None, Parameter(help="vLLM version, where the command cannot tell it.")] = None,
    engine_args: Annotated[
        str, Parameter(help='vLLM arguments of every launch, one string: "--dtype float32".', allow_leading_hyphen=True)
    ] = "",
    engine_env: Annotated[list[str] | None, Parameter(help="KEY=VALUE for every launch; may be repeated.")] = None,
    space: Annotated[str, Parameter(help="Search space: a preset (dflash, quick) or a YAML file.")] = "dflash",
    baseline: Annotated[Path | None, Parameter(help="Your present serve config (YAML), the one to beat.")] = None,
    objective: Annotated[str, Parameter(help="throughput, latency, or e.g. tpot_p50, e2e_p90.")] = "throughput",
    slo: Annotated[list[str] | None, Parameter(help="Limit such as ttft_p99=500ms; may be repeated.")] = None,
    load: Annotated[str, Parameter(help="recorded, recorded*2, concurrency=1,8 or rate=3.5.")] = "recorded",
    temperature: Annotated[str, Parameter(help="recorded, a list such as 0,0.6, or search:LOW-HIGH.")] = "recorded",
    profile_by: Annotated[str, Parameter(help="What names a profile: route, model, session, tag:KEY, none.")] = "route",
    trials: Annotated[int, Parameter(help="Launches to search, baseline and recipe included.")] = 16,
    budget: Annotated[str | None, Parameter(help="Time for the whole study, such as 2h or 45m.")] = None,
    rounds: Annotated[int, Parameter(help="Interleaved confirmation rounds.")] = 3,
    finalists: Annotated[int, Parameter(help="Configurations per condition to confirm.")] = 2,
    blocks: Annotated[int, Parameter(help="Paired blocks per measurement.")] = 4,
    requests: Annotated[int | None, Parameter(help="Requests per measurement at most; all by default.")] = None,
    held_out: Annotated[float, Parameter(help="Share of sessions kept for the confirmation.")] = 0.5,
    confidence: Annotated[float, Parameter(help="Confidence level of intervals.")] = 0.95,
    seed: Annotated[int, Parameter(help="Seed of the search and of the split.")] = 0,
    study: Annotated[str | None, Parameter(help="Name of the study; made from workload and time by default.")] = None,
    out: Out = OUT,
    tracking_uri: Annotated[
        str | None, Parameter(help="MLflow tracking URI; a SQLite file in --out by default.")
    ] = None,
    no_tracking: Annotated[bool, Parameter(help="Do not log to MLflow.")] = False,
    ready_timeout: Annotated[str, Parameter(help="Limit for an engine start.")] = "15m",
    max_bad_share: Annotated[float, Parameter(help="Share of unreadable workload lines that is tolerated.")] = 0.01,
    dry_run: Annotated[bool, Parameter(help="Print the plan and stop.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Tune: launch engines, replay the workload against each, recommend a configuration per profile."""
    from tuner.commands.options import absolute_model, parse_duration, parse_env
    from tuner.commands.running import new_study_name, run_tune
    from tuner.config import build_config
    from tuner.engine_command import engine_argv, split_words

    config = build_config(
        workload=workload.absolute(),  # a study may be resumed from another directory
        model=absolute_model(model),
        draft=absolute_model(draft) if draft else None,
        engine_argv=engine_argv(python=engine_python, command=engine_command),
        engine_version=engine_version,
        engine_args=split_words("--engine-args", engine_args),
        engine_env=parse_env(engine_env or []),
        space=str(Path(space).absolute()) if Path(space).is_file() else space,
        baseline=baseline.absolute() if baseline else None,
        objective=objective,
        slo=tuple(slo or ()),
        load=load,
        temperature=temperature,
        profile_by=profile_by,
        trials=trials,
        budget_s=parse_duration("--budget", budget) if budget else None,
        rounds=rounds,
        finalists=finalists,
        blocks=blocks,
        requests=requests,
        held_out=held_out,
        confidence=confidence,
        seed=seed,
        study=study or new_study_name(workload),
        out=out,
        tracking_uri=tracking_uri,
        tracking=not no_tracking,
        ready_timeout_s=parse_duration("--ready-timeout", ready_timeout),
        max_bad_share=max_bad_share,
    )
    del debug
    return run_tune(config, dry_run=dry_run, as_json=json)


COMMANDS = {
    "resume": "Go on with a study that was stopped; nothing that was measured is measured again.",
    "inspect": "Show what is in a workload: profiles, lengths, arrivals, temperatures.",
    "list": "List the studies of a directory and how far each is.",
    "show": "Show a study's trials and recommendations.",
    "export": "Write a recommended serve configuration.",
    "sync": "Log to MLflow what could not be logged while the study ran.",
}
"""Commands beside the default one: functions in `tuner/commands/`, with what `tune --help` says of each."""

for _name, _help in COMMANDS.items():
    _function = "list_studies" if _name == "list" else _name  # `list` would hide the builtin
    app.command(f"tuner.commands.{_function}:{_function}", name=_name, help=_help)


def main() -> None:
    """Entry point of the `tune` script."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Runs a command line and returns its exit code; an error of the user's becomes one sentence on standard error."""
    from tuner.installation import intruder

    problem = intruder()
    if problem:
        print(f"tune: {problem}", file=sys.stderr)
        return 2
    from cyclopts import CycloptsError

    try:
        code = app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        print(f"tune: {' '.join(str(error).split())} (see `tune --help`)", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tune: interrupted", file=sys.stderr)
        return 4
    except Exception as error:
        if "--debug" in argv:
            raise
        return _report(error)
    return code if isinstance(code, int) else 0


def _report(error: Exception) -> int:
    from runners import RunnerError
    from search_spaces import SearchSpaceError
    from tuner.errors import TunerError
    from workloads import WorkloadError

    if isinstance(error, TunerError):
        print(f"tune: {error}", file=sys.stderr)
        return error.exit_code
    if isinstance(error, WorkloadError | SearchSpaceError | RunnerError):
        print(f"tune: {error}", file=sys.stderr)
        return 3 if isinstance(error, RunnerError) else 2
    print(
        f"tune: unexpected {type(error).__name__}: {error}; run again with --debug for the traceback and report it",
        file=sys.stderr,
    )
    return 1
