"""The command line: options to a TuneConfig, errors to exit codes. Nothing heavy is imported before it is needed."""

import gc
import sys
from importlib import metadata
from typing import Annotated

from cyclopts import App, Parameter

from tuner.commands.options import Debug, Json
from tuner.commands.study_options import StudyOptions

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
    options: StudyOptions,
    *,
    dry_run: Annotated[bool, Parameter(help="Print the plan in short and stop; `tune plan` prints all of it.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Tune: launch engines, replay the workload against each, recommend a configuration per profile."""
    from tuner.commands.running import run_tune

    del debug
    return run_tune(options.config(), dry_run=dry_run, as_json=json)


COMMANDS = {
    "doctor": "Check whether this host, its GPUs, the engine, the model and its draft are ready for a study.",
    "plan": "Show what a study would launch, what is refused and why, and what it would cost; starts no engine.",
    "record": "Record live traffic: a proxy in front of a running server that writes a workload file.",
    "resume": "Go on with a study that was stopped; nothing that was measured is measured again.",
    "inspect": "Show what is in a workload: profiles, lengths, arrivals, sessions, prefix sharing, sampling, problems.",
    "replay": "Measure a running server once: replay a workload against it, tune nothing.",
    "list": "List the studies of a directory and how far each is.",
    "show": "Show a study's trials and recommendations.",
    "explain": "Say why a study came out as it did: interactions, acceptance, speed model, load curve, what to do.",
    "verify": "Measure an exported configuration against the baseline on this host: same, better or worse.",
    "report": "Write a study's report: one HTML file with the answer, the reasons and the plots; finished or not.",
    "export": "Write a recommended serve configuration, or a job that runs the study elsewhere.",
    "sync": "Log to MLflow what could not be logged while the study ran.",
}
"""Commands beside the default one: functions in `tuner/commands/`, with what `tune --help` says of each."""

for _name, _help in COMMANDS.items():
    _function = "list_studies" if _name == "list" else _name  # `list` would hide the builtin
    app.command(f"tuner.commands.{_function}:{_function}", name=_name, help=_help)


def main() -> None:
    """Entry point of the `tune` script."""
    # Imports make a hundred thousand objects that stay: looking through them again and again took a fifth of a start.
    gc.set_threshold(50_000)
    code = run(sys.argv[1:])
    gc.freeze()  # nor is there need to look through all of them at the end
    sys.exit(code)


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
