"""`python -m runners.simulated serve MODEL [flags of vllm serve]`: start, serve, stop.

Environment: VLLM_API_KEY, VLLM_SERVER_DEV_MODE, VLLM_CPU_KVCACHE_SPACE as in vLLM; SIMULATED_CALIBRATION (name or
file), SIMULATED_TIME_SCALE (default 1), SIMULATED_STARTUP_FACTOR (default 1; 0 starts at once),
SIMULATED_NOISE_SEED (default 0), SIMULATED_FAULTS (see `faults`). Exit codes: 0 stopped by a signal, 1 failed
start, 2 bad command line.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

if not __package__:
    # Run by its path, which works from any directory and without an installed package.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runners.simulated.app import Api
from runners.simulated.calibration import calibration_from_environment
from runners.simulated.engine import Engine
from runners.simulated.errors import CalibrationError, FaultError, StartupError
from runners.simulated.faults import Faults, parse_faults
from runners.simulated.flags import ServeFlags, parse_flags
from runners.simulated.hashing import digest64, uniform
from runners.simulated.http1 import bind, start_server
from runners.simulated.log import log, log_failure
from runners.simulated.setup import EngineSetup, resolve, rule_values


def main() -> int:
    """Run the engine; the exit code."""
    flags = parse_flags(sys.argv[1:])
    try:
        calibration = calibration_from_environment(flags.calibration)
        faults = parse_faults(os.environ.get("SIMULATED_FAULTS", ""))
    except (CalibrationError, FaultError) as error:
        sys.stderr.write(f"simulated engine: error: {error}\n")
        return 2
    log(
        "APIServer", "INFO", f"vLLM API server version {calibration.release}+simulated (calibration {calibration.name})"
    )
    log("APIServer", "INFO", f"model {flags.model}, speculative_config {flags.speculative_config}")
    try:
        address = bind(flags.host, flags.port)
        setup = resolve(flags, calibration)
        _fail_on_purpose(setup, faults)
    except OSError as error:
        log_failure("OSError", f"[Errno {error.errno}] {error.strerror}", in_engine=False)
        return 1
    except StartupError as error:
        log_failure(error.exception, error.message, in_engine=error.in_engine)
        return 1
    if faults.grandchild:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    return asyncio.run(_serve(setup, faults, address, _time_scale(flags)))


def _time_scale(flags: ServeFlags) -> float:
    return flags.time_scale or float(os.environ.get("SIMULATED_TIME_SCALE") or 1)


def _fail_on_purpose(setup: EngineSetup, faults: Faults) -> None:
    """Faults that end the process before it listens."""
    values = rule_values(setup)
    if faults.disk_full:
        raise StartupError("OSError", "[Errno 28] No space left on device: 'torch_compile_cache'")
    if any(rule.matches(values) for rule in faults.oom_if):
        raise StartupError(
            "torch.OutOfMemoryError",
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.99 GiB of which 0.31 GiB "
            "is free.",
        )
    identity = repr(sorted(values.items())).encode() + repr(setup.flags.speculative_config).encode()
    chosen = faults.exit_share > uniform(digest64(identity))
    if faults.exit_at_start or chosen or any(rule.matches(values) for rule in faults.exit_if):
        log_failure("RuntimeError", "simulated fault: exit before ready", in_engine=True)
        raise SystemExit(int(faults.exit_at_start) or 1)


def _run_out_of_memory(faults: Faults, phase: str) -> None:
    if faults.oom_at == phase:
        raise StartupError(
            "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 0.31 GiB free."
        )


async def _start(setup: EngineSetup, faults: Faults, scale: float) -> None:
    """Let the start-up phases take their time, with the lines that vLLM would log."""
    startup, eager = setup.calibration.startup, setup.flags.enforce_eager
    factor = float(os.environ.get("SIMULATED_STARTUP_FACTOR") or 1) / scale
    log("EngineCore", "INFO", f"Initializing a V1 LLM engine with config: model={setup.flags.model!r}")
    await asyncio.sleep(faults.slow_start + startup.import_s * factor)
    log("EngineCore", "INFO", f"Starting to load model {setup.flags.model}...")
    await asyncio.sleep(startup.weights_s * factor)
    _run_out_of_memory(faults, "weights")
    log("EngineCore", "INFO", f"Loading weights took {startup.weights_s:.2f} seconds")
    if not eager:
        await asyncio.sleep(startup.compile_s * factor)
        log("EngineCore", "INFO", f"torch.compile takes {startup.compile_s:.2f} s in total")
    _run_out_of_memory(faults, "kv")
    tokens = (setup.memory.blocks - 1) * setup.block_tokens
    log("EngineCore", "INFO", f"Available KV cache memory: {setup.memory.kv_bytes / 2**30:.2f} GiB")
    log("EngineCore", "INFO", f"GPU KV cache size: {tokens:,} tokens")
    if not eager:
        log("EngineCore", "INFO", "Capturing CUDA graphs (decode, FULL):   0%|          | 0/67")
        await asyncio.sleep(startup.graphs_s * factor)
        _run_out_of_memory(faults, "graphs")
        log("EngineCore", "INFO", f"Graph capturing finished in {startup.graphs_s:.0f} secs")


async def _serve(setup: EngineSetup, faults: Faults, address: socket.socket, scale: float) -> int:
    """Start and serve until a signal comes, even during the start, or the engine fails."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, (lambda: None) if faults.ignore_sigterm else stop.set)
    serving = asyncio.create_task(_start_and_run(setup, faults, address, scale))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        error = serving.exception()
        if isinstance(error, StartupError):
            log_failure(error.exception, error.message, in_engine=error.in_engine)
        else:
            log_failure("RuntimeError", f"the simulated engine failed: {error!r}", in_engine=True)
        return 1
    log("APIServer", "INFO", "Shutting down")
    serving.cancel()
    return 0


async def _start_and_run(setup: EngineSetup, faults: Faults, address: socket.socket, scale: float) -> None:
    await _start(setup, faults, scale)
    noise_seed = int(os.environ.get("SIMULATED_NOISE_SEED") or 0)
    engine = Engine(setup, faults, time_scale=scale, noise_seed=noise_seed)
    await start_server(Api(setup, engine, faults), address)
    log("APIServer", "INFO", f"Starting vLLM server on http://{setup.flags.host}:{setup.flags.port}")
    log("APIServer", "INFO", "Application startup complete.")
    await engine.run()


if __name__ == "__main__":
    sys.exit(main())
