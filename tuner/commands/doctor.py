"""`tune doctor`."""

import json as jsonlib
from typing import Annotated

from cyclopts import Parameter

from tuner.commands.options import OUT, Debug, Json, Out, absolute_model
from tuner.console import Narrator
from tuner.doctor import Question, examine


def doctor(
    *,
    model: Annotated[str | None, Parameter(help="Target model: directory or hub id.")] = None,
    draft: Annotated[str | None, Parameter(help="Draft of the model: directory or hub id.")] = None,
    engine_python: Annotated[str | None, Parameter(help="Python of the environment that vLLM is installed in.")] = None,
    engine_command: Annotated[str | None, Parameter(help="Command that starts the engine.")] = None,
    gpus: Annotated[str | None, Parameter(help="GPUs that engines would use, such as 0,1.")] = None,
    out: Out = OUT,
    tracking_uri: Annotated[str | None, Parameter(help="MLflow tracking URI.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Check whether this host, its GPUs, the engine, the model and its draft are ready for a study."""
    del debug
    question = Question(
        model=absolute_model(model) if model else None,
        draft=absolute_model(draft) if draft else None,
        engine_python=engine_python,
        engine_command=engine_command,
        gpus=gpus,
        out=out,
        tracking_uri=tracking_uri,
    )
    checks = list(examine(question))
    problems = sum(check.status == "problem" for check in checks)
    if json:
        print(jsonlib.dumps([check.model_dump(mode="json") for check in checks], indent=2))
        return 2 if problems else 0
    narrator = Narrator()
    for check in checks:
        narrator.line(f"{check.status:<8} {check.name}: {check.found}")
        if check.remedy:
            narrator.line(f"         -> {check.remedy}")
    warnings = sum(check.status == "warning" for check in checks)
    narrator.line(f"{problems} problems, {warnings} warnings" if problems or warnings else "ready")
    return 2 if problems else 0
