"""What a study is asked to do, as options: one dataclass that `tune` and `tune plan` share. Imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.commands.options import (
    OUT,
    ClientProcesses,
    Out,
    ProfileBy,
    Responses,
    Sample,
    TimeUnit,
    WorkloadFile,
    WorkloadFormat,
    absolute_model,
    parse_duration,
    parse_env,
)

if TYPE_CHECKING:
    from tuner.config import TuneConfig


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of `tune` and `tune plan`; each field is an option of the same name."""

    workload: WorkloadFile
    model: Annotated[str, Parameter(help="Target model: directory or hub id.")]
    draft: Annotated[str | None, Parameter(help="DFlash draft of the model: directory or hub id.")] = None
    engine_python: Annotated[str | None, Parameter(help="Python of the environment that vLLM is installed in.")] = None
    engine_command: Annotated[str | None, Parameter(help='Command that starts the engine, such as "vllm serve".')] = (
        None
    )
    engine_image: Annotated[str | None, Parameter(help="Container image with vLLM, run with docker or podman.")] = None
    container_command: Annotated[str | None, Parameter(help="docker or podman; what is found by default.")] = None
    engine_url: Annotated[
        str | None, Parameter(help="An engine that runs already: measured as it is, never restarted.")
    ] = None
    engine_api_key_env: Annotated[
        str | None, Parameter(help="Name of the environment variable with that engine's API key.")
    ] = None
    engine_version: Annotated[str | None, Parameter(help="vLLM version, where the command cannot tell it.")] = None
    engine_args: Annotated[
        str, Parameter(help='vLLM arguments of every launch, one string: "--dtype float32".', allow_leading_hyphen=True)
    ] = ""
    engine_env: Annotated[list[str] | None, Parameter(help="KEY=VALUE for every launch; may be repeated.")] = None
    gpus: Annotated[str | None, Parameter(help="GPUs that engines may use, such as 0,1; all visible by default.")] = (
        None
    )
    space: Annotated[
        str, Parameter(help="dflash, quick, dflash2, speculation, batching, memory, full, or a YAML file.")
    ] = "dflash"
    baseline: Annotated[Path | None, Parameter(help="Your present serve config (YAML), the one to beat.")] = None
    objective: Annotated[str, Parameter(help="throughput, latency, or e.g. tpot_p50, e2e_p90.")] = "throughput"
    slo: Annotated[list[str] | None, Parameter(help="Limit such as ttft_p99=500ms; may be repeated.")] = None
    load: Annotated[str, Parameter(help="recorded, recorded*2, concurrency=1,8, rate=3.5, rate=3.5:cv=2.")] = "recorded"
    temperature: Annotated[str, Parameter(help="recorded, a list such as 0,0.6, or search:LOW-HIGH.")] = "recorded"
    profile_by: ProfileBy = "route"
    sample: Sample = None
    warm_start: Annotated[str | None, Parameter(help="Earlier study of this model whose best are tried first.")] = None
    trials: Annotated[int, Parameter(help="Launches to search, baseline and recipe included.")] = 16
    budget: Annotated[str | None, Parameter(help="Time for the whole study, such as 2h or 45m.")] = None
    rounds: Annotated[int, Parameter(help="Interleaved confirmation rounds.")] = 3
    finalists: Annotated[int, Parameter(help="Configurations per condition to confirm.")] = 2
    blocks: Annotated[int, Parameter(help="Paired blocks per measurement.")] = 4
    requests: Annotated[int | None, Parameter(help="Requests per measurement at most; all by default.")] = None
    held_out: Annotated[float, Parameter(help="Share of sessions kept for the confirmation.")] = 0.5
    confidence: Annotated[float, Parameter(help="Confidence level of intervals.")] = 0.95
    seed: Annotated[int, Parameter(help="Seed of the search, the split and a rate's arrivals.")] = 0
    client_processes: ClientProcesses = 1
    study: Annotated[str | None, Parameter(help="Name of the study; made from workload and time by default.")] = None
    out: Out = OUT
    tracking_uri: Annotated[
        str | None, Parameter(help="MLflow tracking URI; MLFLOW_TRACKING_URI, else a file in --out.")
    ] = None
    no_tracking: Annotated[bool, Parameter(help="Do not log to MLflow.")] = False
    ready_timeout: Annotated[str, Parameter(help="Limit for an engine start.")] = "15m"
    hang_timeout: Annotated[str, Parameter(help="Silence after which a busy engine counts as hung.")] = "2m"
    format: WorkloadFormat = None
    time_unit: TimeUnit = None
    responses: Responses = None
    max_bad_share: Annotated[float, Parameter(help="Share of unreadable workload lines that is tolerated.")] = 0.01

    def config(self) -> "TuneConfig":
        """The options, checked.

        Raises:
            UsageError: the first option that is wrong, or no engine found.
        """
        from tuner.commands.running import new_study_name
        from tuner.config import build_config
        from tuner.engine_choice import check_one_engine, container_command
        from tuner.engine_command import engine_argv, split_words

        image, url = self.engine_image, self.engine_url
        check_one_engine(python=self.engine_python, command=self.engine_command, image=image, url=url)
        return build_config(
            workload=self.workload.absolute(),  # a study may be resumed from another directory
            workload_format=self.format,
            time_unit=self.time_unit,
            responses=self.responses.absolute() if self.responses else None,
            model=absolute_model(self.model),
            draft=absolute_model(self.draft) if self.draft else None,
            engine_argv=() if image or url else engine_argv(python=self.engine_python, command=self.engine_command),
            engine_image=image,
            container_command=container_command(self.container_command) if image else "docker",
            engine_url=url,
            engine_api_key_env=self.engine_api_key_env,
            engine_version=self.engine_version,
            engine_args=split_words("--engine-args", self.engine_args),
            engine_env=parse_env(self.engine_env or []),
            gpus=self.gpus,
            space=str(Path(self.space).absolute()) if Path(self.space).is_file() else self.space,
            baseline=self.baseline.absolute() if self.baseline else None,
            objective=self.objective,
            slo=tuple(self.slo or ()),
            load=self.load,
            temperature=self.temperature,
            profile_by=self.profile_by,
            sample=self.sample,
            warm_start=self.warm_start,
            trials=self.trials,
            budget_s=parse_duration("--budget", self.budget) if self.budget else None,
            rounds=self.rounds,
            finalists=self.finalists,
            blocks=self.blocks,
            requests=self.requests,
            held_out=self.held_out,
            confidence=self.confidence,
            seed=self.seed,
            client_processes=self.client_processes,
            study=self.study or new_study_name(self.workload),
            out=self.out,
            tracking_uri=self.tracking_uri,
            tracking=not self.no_tracking,
            ready_timeout_s=parse_duration("--ready-timeout", self.ready_timeout),
            hang_timeout_s=parse_duration("--hang-timeout", self.hang_timeout),
            max_bad_share=self.max_bad_share,
        )
