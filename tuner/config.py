"""TuneConfig: everything a study is asked to do, validated once and written to the study's directory.

The command line and a Python caller both build one of these. Nothing here touches the disk or the engine.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tuner.errors import UsageError
from tuner.tracking_uri import check_no_password


class TuneConfig(BaseModel):
    """The request for one study."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: Path = Field(description="recorded traffic, in a known format")
    workload_format: str | None = Field(default=None, description="format of the workload; None sniffs it")
    time_unit: str | None = Field(default=None, description="unit of the workload's times; None tells it")
    responses: Path | None = Field(default=None, description="output of an OpenAI batch, to join with its input")
    model: str = Field(description="target model: directory or hub id")
    draft: str | None = Field(default=None, description="DFlash draft: directory or hub id")
    engine_argv: tuple[str, ...] = Field(
        description="command that starts the engine, up to and including `serve`; empty for an image or a URL"
    )
    engine_image: str | None = Field(default=None, description="container image with the engine")
    container_command: str = Field(default="docker", description="docker or podman, where an image is named")
    engine_url: str | None = Field(default=None, description="engine that runs already and is not to be restarted")
    engine_api_key_env: str | None = Field(
        default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="variable with the key of the engine at the URL"
    )
    engine_version: str | None = Field(default=None, description="vLLM version, where the command cannot tell it")
    engine_args: tuple[str, ...] = Field(default=(), description="vLLM arguments that every launch gets")
    engine_env: dict[str, str] = Field(default_factory=dict, description="environment variables of every launch")
    gpus: str | None = Field(default=None, description="GPUs that engines may use, such as 0,1; None takes all visible")
    space: str = Field(default="dflash", description="preset or YAML file")
    baseline: Path | None = Field(default=None, description="YAML with the user's own serve config, the one to beat")
    objective: str = Field(default="throughput", description="what to optimise, see tuner/objective.py")
    slo: tuple[str, ...] = Field(default=(), description="limits such as ttft_p99=500ms")
    load: str = Field(default="recorded", description="how the replay is driven, see workloads/load.py")
    temperature: str = Field(default="recorded", description="recorded, a list of values, or search[:LOW-HIGH]")
    profile_by: str = Field(default="route", description="what names a profile")
    sample: int | None = Field(default=None, ge=2, description="requests of the workload to keep; None keeps all")
    warm_start: str | None = Field(default=None, description="an earlier study in `out` whose configs are tried first")
    trials: int = Field(default=16, ge=2, description="launches before the confirmation, baseline and recipe included")
    budget_s: float | None = Field(default=None, gt=0, description="wall-clock seconds for the whole study")
    rounds: int = Field(default=3, ge=2, description="interleaved confirmation rounds")
    finalists: int = Field(default=2, ge=1, description="configurations per condition that are confirmed")
    blocks: int = Field(default=4, ge=2, description="paired blocks per measurement")
    requests: int | None = Field(default=None, ge=2, description="requests per measurement at most; None takes all")
    held_out: float = Field(default=0.5, gt=0, lt=1, description="share of sessions kept for the confirmation")
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="confidence level of the stated intervals")
    seed: int = Field(default=0, ge=0, description="seed of the search, the split and the arrivals of a rate")
    client_processes: int = Field(default=1, ge=1, description="processes that the replay sends from")
    study: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="name of the study")
    out: Path = Field(default=Path("runs"), description="directory of studies")
    tracking_uri: Annotated[str | None, AfterValidator(check_no_password)] = Field(
        default=None, description="MLflow tracking URI, no password; None is MLFLOW_TRACKING_URI, else <out>/mlflow.db"
    )
    tracking: bool = Field(default=True, description="whether to log to MLflow")
    ready_timeout_s: float = Field(default=900, gt=0, description="limit for an engine start")
    hang_timeout_s: float = Field(default=120, gt=0, description="silence after which a busy engine counts as hung")
    measure_timeout_s: float = Field(default=1800, gt=0, description="limit for one measurement")
    max_bad_share: float = Field(default=0.01, ge=0, le=1, description="share of unreadable workload lines tolerated")

    @property
    def directory(self) -> Path:
        """Where this study lives."""
        return self.out / self.study


def build_config(**options: object) -> TuneConfig:
    """Validates options into a TuneConfig.

    Raises:
        UsageError: naming the first option that is wrong, its value and what is allowed.
    """
    try:
        return TuneConfig.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + ".".join(str(part) for part in first["loc"]).replace("_", "-")
        raise UsageError(f"{option}: {first['msg']} (got {first['input']!r:.100})") from error
