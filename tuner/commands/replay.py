"""`tune replay F --url U`."""

import json as jsonlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import uvloop
from cyclopts import Parameter

from tuner.commands.options import (
    ClientProcesses,
    Debug,
    Json,
    MaxBadShare,
    Responses,
    TimeUnit,
    WorkloadFile,
    WorkloadFormat,
    parse_duration,
)
from tuner.errors import UsageError
from tuner.replay_report import ReplayReport, make_report, print_report, request_lines
from tuner.running_server import RunningServer
from workloads import (
    Block,
    Load,
    Profile,
    ReplayResult,
    Target,
    WorkloadError,
    parse_loads,
    read_workload,
    split_profiles,
    summarise,
)
from workloads import replay as send_all


@dataclass(frozen=True, slots=True)
class _Settings:
    """How each measurement is made."""

    target: Target
    temperature: float | None
    seed: int
    deadline_s: float
    request_timeout_s: float
    client_processes: int
    per_request: Path | None


def replay(
    workload: WorkloadFile,
    *,
    url: Annotated[str, Parameter(help="Root of the running server, such as http://127.0.0.1:8000.")],
    model: Annotated[str | None, Parameter(help="Model name to ask for; the only one served by default.")] = None,
    format: WorkloadFormat = None,  # noqa: A002 - the option's name, and never the builtin here
    time_unit: TimeUnit = None,
    responses: Responses = None,
    load: Annotated[str, Parameter(help="As in `tune --load`; several are measured one after the other.")] = "recorded",
    profile_by: Annotated[str, Parameter(help="What names a profile; each is measured on its own.")] = "none",
    temperature: Annotated[float | None, Parameter(help="Replaces the recorded temperatures.")] = None,
    requests: Annotated[int | None, Parameter(help="Only the first of each profile; all by default.")] = None,
    api_key_env: Annotated[str | None, Parameter(help="Environment variable that holds the server's key.")] = None,
    seed: Annotated[int, Parameter(help="Seed of a rate's arrivals.")] = 0,
    client_processes: ClientProcesses = 1,
    deadline: Annotated[str, Parameter(help="Limit for one measurement; what is unfinished is abandoned.")] = "1h",
    request_timeout: Annotated[str, Parameter(help="Limit for one request.")] = "5m",
    per_request: Annotated[
        Path | None, Parameter(help="Also write a line of JSON for each request: times and counts, no text.")
    ] = None,
    max_bad_share: MaxBadShare = 0.01,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Measure a running server once: replay a workload against it, tune nothing."""
    del debug
    key = _key(api_key_env)
    loads = _loads(load)
    found = read_workload(
        workload, format=format, time_unit=time_unit, responses=responses, max_bad_share=max_bad_share
    )
    profiles = [Profile(p.name, p.requests[:requests]) for p in split_profiles(found, profile_by)]
    server = RunningServer(Target(url.rstrip("/"), key, "").base_url, key)
    settings = _Settings(
        target=Target(server.base_url, key, model or server.model()),
        temperature=temperature,
        seed=seed,
        deadline_s=parse_duration("--deadline", deadline),
        request_timeout_s=parse_duration("--request-timeout", request_timeout),
        client_processes=client_processes,
        per_request=per_request,
    )
    if per_request is not None:
        per_request.write_bytes(b"")
    reports = []
    for profile in profiles:
        for one_load in loads:
            report = _measure(server, profile, one_load, settings)
            reports.append(report)
            if not json:
                print_report(report)
    if json:
        print(jsonlib.dumps([report.model_dump(mode="json") for report in reports], indent=2))
    return 0 if all(report.valid for report in reports) else 1


def _measure(server: RunningServer, profile: Profile, load: Load, settings: _Settings) -> ReplayReport:
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    before = server.scrape()
    result = uvloop.run(_send(profile, load, settings))
    if settings.per_request is not None:
        with settings.per_request.open("ab") as file:
            file.writelines(request_lines(result))
    counters = server.counted_since(before) if before is not None else None
    engine: dict[str, float] = {}
    if counters is not None:
        from tuner.counters import counter_metrics

        engine = counter_metrics(counters)
    return make_report(
        result,
        summarise(result),
        profile=profile.name,
        model=settings.target.model,
        started_at=started_at,
        client_processes=settings.client_processes,
        engine=engine,
    )


async def _send(profile: Profile, load: Load, settings: _Settings) -> ReplayResult:
    return await send_all(
        settings.target,
        [Block(profile.name, 0, profile.requests)],
        load,
        temperature=settings.temperature,
        seed=None,  # recorded seeds are kept; others would change how the engine samples, and how fast
        arrival_seed=settings.seed,
        deadline_s=settings.deadline_s,
        request_timeout_s=settings.request_timeout_s,
        client_processes=settings.client_processes,
    )


def _key(variable: str | None) -> str:
    if variable is None:
        return ""
    if not os.environ.get(variable):
        raise UsageError(
            f"--api-key-env {variable}: that environment variable is not set; export the server's key in it"
        )
    return os.environ[variable]


def _loads(text: str) -> tuple[Load, ...]:
    try:
        return parse_loads(text)
    except WorkloadError as error:
        raise UsageError(f"--load: {error}") from error
