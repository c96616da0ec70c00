"""`tune show STUDY`."""

import json as jsonlib

from tuner.commands.options import OUT, Debug, Json, Out, StudyName
from tuner.console import Narrator
from tuner.objective import parse_objective
from tuner.store import Store


def show(study: StudyName, *, out: Out = OUT, json: Json = False, debug: Debug = False) -> int:
    """Show a study's trials and recommendations."""
    del debug
    store = Store.open(out, study)
    answers, records = store.recommendations(), store.records()
    if json:
        document = {
            "recommendations": [a.model_dump(mode="json") for a in answers],
            "trials": [r.model_dump(mode="json") for r in records],
        }
        print(jsonlib.dumps(document, indent=2))
        return 0
    narrator = Narrator()
    narrator.trials(records, parse_objective(store.config().objective).metric)
    if answers:
        narrator.recommendations(answers)
    else:
        narrator.line(f"not finished; go on with `tune resume {study} --out {out}`")
    return 0
