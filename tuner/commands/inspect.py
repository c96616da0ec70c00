"""`tune inspect F`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner.commands.options import (
    Debug,
    Json,
    MaxBadShare,
    ProfileBy,
    Responses,
    Sample,
    TimeUnit,
    WorkloadFile,
    WorkloadFormat,
)
from tuner.console import Narrator
from tuner.errors import UsageError
from tuner.inspection_page import page
from tuner.inspection_text import lines
from workloads import Inspection, RequestStream, inspect_stream, inspect_traffic, read_sample, stream_requests


def inspect(
    workload: WorkloadFile,
    *,
    format: WorkloadFormat = None,  # noqa: A002 - the option's name, and never the builtin here
    time_unit: TimeUnit = None,
    responses: Responses = None,
    profile_by: ProfileBy = "route",
    sample: Sample = None,
    seed: Annotated[int, Parameter(help="Seed of the sample.")] = 0,
    max_bad_share: MaxBadShare = 0.01,
    html: Annotated[Path | None, Parameter(help="Write a page to this file.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show what is in a workload: profiles, lengths, arrivals, sessions, prefix sharing, sampling, problems."""
    del debug
    opened = partial(
        stream_requests,
        workload,
        format=format,
        time_unit=time_unit,
        responses=responses,
        max_bad_share=max_bad_share,
    )
    found = _look(opened, profile_by, sample, seed)
    if html is not None:
        try:
            html.write_text(page(found), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--html {html}: {error.strerror}; choose another file") from error
    if json:
        print(found.model_dump_json(indent=2))
        return 0
    narrator = Narrator()
    for line in lines(found):
        narrator.line(line)
    if html is not None:
        narrator.line(f"page        {html}")
    return 0


def _look(opened: Callable[[], RequestStream], profile_by: str, sample: int | None, seed: int) -> Inspection:
    if sample is None:
        return inspect_stream(opened, profile_by)
    kept, _ = read_sample(opened, sample, seed=seed, profile_by=profile_by)
    return inspect_traffic(kept.requests, kept, profile_by)
