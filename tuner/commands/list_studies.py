"""`tune list`."""

import json as jsonlib

from tuner.commands.options import OUT, Debug, Json, Out
from tuner.console import Narrator
from tuner.store import Store


def list_studies(*, out: Out = OUT, json: Json = False, debug: Debug = False) -> int:
    """List the studies of a directory and how far each is."""
    del debug
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
    if json:
        print(jsonlib.dumps(rows, indent=2))
        return 0
    narrator = Narrator()
    for row in rows:
        narrator.line(f"{row['study']}: {row['state']}, {row['trials']} trials")
    if not rows:
        narrator.line(f"no studies in {out}")
    return 0
