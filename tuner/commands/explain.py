"""`tune explain STUDY`."""

from tuner.commands.options import OUT, Debug, Json, Out, StudyName


def explain(study: StudyName, *, out: Out = OUT, json: Json = False, debug: Debug = False) -> int:
    """Say why a study came out as it did: interactions, acceptance, speed model, load curve, what to do."""
    from tuner.explain import explain_study
    from tuner.explain.text import print_explanation
    from tuner.store import Store

    del debug
    explanation = explain_study(Store.open(out, study))
    if json:
        print(explanation.model_dump_json(indent=2))
    else:
        print_explanation(explanation)
    return 0
