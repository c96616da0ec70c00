"""Sessions: how many turns they have, and how long people think between them. Computed from times alone."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from workloads.columns import Numbers
from workloads.quantiles import Quantiles, quantiles


class Conversations(BaseModel):
    """The sessions of some requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sessions: int = Field(description="Number of sessions; a request without a session counts as one.")
    without_session: int = Field(description="Requests that name no session.")
    one_request: int = Field(description="Sessions that are named and have one request only.")
    turns: Quantiles | None = Field(description="Requests in a session.")
    think_s: Quantiles | None = Field(
        description="From the end of a turn to the arrival of the next, seconds, where the duration is recorded and "
        "the turns do not overlap."
    )
    between_turns_s: Quantiles | None = Field(
        description="From the arrival of a turn to the arrival of the next, seconds."
    )
    overlapping: int = Field(description="Turns that arrived before the one before them had ended.")


def conversations(numbers: Numbers) -> Conversations:
    """The sessions of requests in order of arrival."""
    _, session, turns = np.unique(numbers.session, return_inverse=True, return_counts=True)
    order = np.argsort(session, kind="stable")
    follows = np.diff(session[order]) == 0
    earlier, later = order[:-1][follows], order[1:][follows]
    between_s = numbers.offset_s[later] - numbers.offset_s[earlier]
    think_s = between_s - numbers.duration_s[earlier]
    named = numbers.has("in_session")
    return Conversations(
        sessions=len(turns),
        without_session=int((~named).sum()),
        one_request=int(((turns == 1) & (np.bincount(session, named) > 0)).sum()),
        turns=quantiles(turns.astype(np.float64)),
        think_s=quantiles(think_s[think_s >= 0]),
        between_turns_s=quantiles(between_s),
        overlapping=int((think_s < 0).sum()),
    )
