"""`tune resume STUDY`."""

from tuner.commands.options import OUT, Debug, Json, Out, StudyName
from tuner.commands.running import run_study
from tuner.store import Store


def resume(study: StudyName, *, out: Out = OUT, json: Json = False, debug: Debug = False) -> int:
    """Go on with a study that was stopped; nothing that was measured is measured again."""
    del debug
    config = Store.open(out, study).config().model_copy(update={"out": out})
    return run_study(config, resume=True, as_json=json)
