"""`tune inspect F`."""

import json as jsonlib
from typing import Annotated

from cyclopts import Parameter

from tuner.commands.options import Debug, Json, MaxBadShare, WorkloadFile
from tuner.console import Narrator
from workloads import read_workload, split_profiles


def inspect(
    workload: WorkloadFile,
    *,
    profile_by: Annotated[str, Parameter(help="What names a profile.")] = "route",
    max_bad_share: MaxBadShare = 0.01,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show what is in a workload: profiles, lengths, arrivals, temperatures."""
    del debug
    found = read_workload(workload, max_bad_share=max_bad_share)
    profiles = split_profiles(found, profile_by)
    summaries = {profile.name: profile.summary().model_dump(mode="json") for profile in profiles}
    if json:
        rejected = [{"line": r.line, "reason": r.reason} for r in found.rejected]
        document = {"format": found.format, "digest": found.digest, "profiles": summaries, "rejected": rejected}
        print(jsonlib.dumps(document, indent=2, default=str))
        return 0
    narrator = Narrator()
    narrator.line(f"{found.path}: {found.format} format, {len(found.requests)} requests, {found.digest[:19]}")
    for name, summary in summaries.items():
        narrator.line(f"profile {name}")
        for field, value in summary.items():
            if field != "name":
                narrator.line(f"  {field}: {_shown(value)}")
    for line in found.rejected:
        narrator.line(f"rejected line {line.line}: {line.reason}")
    return 0


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
