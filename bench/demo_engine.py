"""The engine that benches measure: the demo's pair on the CPU engine, as `make demo` runs it."""

from pathlib import Path
from typing import Any

from runners import LaunchSpec
from search_spaces import Scalar, ServeConfig
from tuner.config import TuneConfig, build_config
from tuner.engine_command import engine_argv
from tuner.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "workloads/samples/api_traffic.jsonl"
ENGINE_ARGS = ("--dtype", "float32", "--enforce-eager", "--max-model-len", "4096")


def demo_config(**options: Any) -> TuneConfig:
    """The configuration of a study on the demo's engine; options are those of `tuner.config.build_config`."""
    settings: dict[str, Any] = {
        "workload": SAMPLE,
        "model": str(ROOT / "demo/models/target"),
        "draft": str(ROOT / "demo/models/draft"),
        "engine_argv": engine_argv(python=str(ROOT / ".engine/bin/python"), command=None),
        "engine_args": ENGINE_ARGS,
        "engine_env": {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        "space": str(ROOT / "demo/space.yaml"),
        "load": "concurrency=1",
        "study": "bench",
    }
    return build_config(**settings | options)


def serve_config(plan: Plan, k: int) -> ServeConfig:
    """The engine with draft length k; 0 is no speculation."""
    values: dict[str, Scalar] = {"method": "dflash", "num_speculative_tokens": k} if k else {"method": "none"}
    return plan.space.serve_config(plan.space.complete(values))


def launch_spec(plan: Plan, config: ServeConfig, directory: Path) -> LaunchSpec:
    """How a bench starts that engine."""
    return LaunchSpec(
        argv=(*plan.config.engine_argv, *config.to_argv(), "--served-model-name", "bench"),
        env=config.env,
        workdir=directory,
        served_model="bench",
        study="bench",
    )
