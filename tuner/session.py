"""The story of a study, from the workload to the recommendation.

Every step has a name that is the same in every run of the study, so `tune resume` walks the same story again and does
only what is missing.
"""

from tuner.config import TuneConfig
from tuner.console import Narrator
from tuner.errors import InvalidMeasurementsError, SloUnmetError
from tuner.plan import make_plan
from tuner.records import Recommendation
from tuner.store import Store
from tuner.study import Study


async def tune(config: TuneConfig, *, resume: bool = False, narrator: Narrator | None = None) -> list[Recommendation]:
    """Runs a study to its recommendations.

    Raises:
        TunerError, WorkloadError, SearchSpaceError: see their modules; the command line turns each into an exit code.
    """
    narrator = narrator or Narrator()
    plan = make_plan(config)
    store = Store.open(config.out, config.study) if resume else Store.create(config)
    with store.lock():
        narrator.plan(plan)
        study = Study(plan, store, narrator)
        study.begin()
        await study.measure_baseline()
        await study.measure_starting_points()
        await study.search()
        await study.confirm()
        answers = study.recommend()
        await study.publish(answers)
    unanswered = [c.key for c in plan.conditions if c.key not in {answer.condition for answer in answers}]
    if unanswered:
        raise InvalidMeasurementsError(
            f"no answer for {', '.join(unanswered)}: its baseline was never measured validly (see the lines marked "
            "INVALID); quiet the host, lower --load or raise --requests, and start a new study"
        )
    unmet = [answer.condition for answer in answers if not answer.slo_met]
    if unmet:
        raise SloUnmetError(
            f"no measured configuration meets the SLO for {', '.join(unmet)}; relax --slo or widen the search space"
        )
    return answers
