"""`tune verify CONFIG`."""

import dataclasses
import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.commands.options import Debug, Json, absolute_model
from tuner.commands.study_options import StudyOptions
from tuner.errors import WorseError

if TYPE_CHECKING:
    from tuner.verify import Verdict


def verify(
    config: Annotated[Path, Parameter(help="serve.yaml that `tune export` wrote, or any YAML of vLLM flags.")],
    options: StudyOptions,
    *,
    against: Annotated[
        str, Parameter(help='What it is compared with: "baseline" (no speculation), or another YAML.')
    ] = "baseline",
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Measure an exported configuration against the baseline on this host: same, better or worse.

    Options are those of `tune`; --draft names a new draft, which is compared with the file's own.
    """
    import uvloop

    from tuner.console import Narrator
    from tuner.verify import draft_of, verify

    del debug
    new_draft = absolute_model(options.draft) if options.draft else None
    study = options.study or f"verify-{_stamp()}"
    request = dataclasses.replace(
        options, draft=draft_of(config), study=study, no_tracking=True, space="quick"
    ).config()
    say = Narrator(quiet=json).line
    verdicts = uvloop.run(verify(request, config, against=against, new_draft=new_draft, say=say))
    if json:
        print(jsonlib.dumps([verdict.model_dump(mode="json") for verdict in verdicts], indent=2))
    else:
        for verdict in verdicts:
            print(_sentence(verdict))
    worse = [verdict.condition for verdict in verdicts if verdict.verdict == "worse"]
    if worse:
        raise WorseError(
            f"{config} is worse than {verdicts[0].reference} for {', '.join(worse)}; run a new study on this host"
        )
    return 0


def _sentence(v: "Verdict") -> str:
    e = v.effect
    text = (
        f"{v.condition}: {v.verdict}: {v.contender} runs {e.gain:.2f}x ({e.low:.2f} to {e.high:.2f}) of {v.reference}"
    )
    if v.earlier:
        text += f"; the study measured {v.earlier.gain:.2f}x ({v.earlier.low:.2f} to {v.earlier.high:.2f})"
    if v.acceptance_length and v.reference_acceptance_length:
        text += f"; acceptance length {v.reference_acceptance_length:.2f} -> {v.acceptance_length:.2f}"
    return f"{text}; outputs {v.outputs.verdict}"


def _stamp() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
