"""`tune sync STUDY`."""

from tuner.commands.options import OUT, Debug, Out, StudyName
from tuner.console import Narrator, summary_markdown
from tuner.errors import StudyError
from tuner.plan import make_plan
from tuner.store import Store
from tuner.tracking import MlflowTracker
from tuner.tracking_uri import tracking_uri, without_password


def sync(study: StudyName, *, out: Out = OUT, debug: Debug = False) -> int:
    """Log to MLflow what could not be logged while the study ran."""
    del debug
    store = Store.open(out, study)
    config = store.config().model_copy(update={"out": out})
    provenance = store.provenance()
    if provenance is None:
        raise StudyError(f"study {study!r} has measured nothing yet")
    uri = tracking_uri(config.tracking_uri, out)
    tracker = MlflowTracker(uri, make_plan(config), store)
    try:
        tracker.open(provenance)
        for record in store.records():
            tracker.log_trial(record)
        answers = store.recommendations()
        if answers:
            tracker.close(answers, summary_markdown(answers))
    except Exception as error:
        said = without_password(f"MLflow at {uri}: {error}")
        raise StudyError(f"{said}; start it or correct --tracking-uri, then run `tune sync` again") from error
    Narrator().line(f"{len(store.records())} trials are in {without_password(uri)}")
    return 0
