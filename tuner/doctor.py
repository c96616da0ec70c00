"""Is this host ready for a study: one check after another, each with what was found and, if need be, what to do.

Reads and probes only: no engine is started, no model is loaded, nothing is left behind. The checks of model and engine
are those that a study makes too, so that what passes here is not refused there.
"""

import os
import platform
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil
from pydantic import Field

from runners.gpu import Gpu, GpuError, busy_before_launch, open_nvml, usable_gpus
from runners.port import PortReservation
from search_spaces import Checkpoint, Release, SearchSpaceError, check_draft_fits, load_release, read_checkpoint
from tuner.engine_command import engine_argv, engine_version
from tuner.errors import UsageError
from tuner.records import Strict
from tuner.tracking_uri import VARIABLE, check_no_password

GIB = 1 << 30
LOW_DISK_BYTES, NO_DISK_BYTES = 20 * GIB, 1 * GIB
LOW_MEMORY_BYTES = 4 * GIB
LOW_SHARED_MEMORY_BYTES = 1 * GIB
MAX_CLOCK_STEP_S = 0.02
SLOW_CLOCK_SOURCES = {"hpet", "acpi_pm", "jiffies"}
MLFLOW_TIMEOUT_S = 5.0


class Check(Strict):
    """What one check found."""

    name: str = Field(description="what was looked at")
    status: Literal["ok", "warning", "problem"] = Field(description="a problem keeps a study from running")
    found: str = Field(description="what is there")
    remedy: str | None = Field(default=None, description="what to do; None where nothing is to be done")


class Question(Strict):
    """What the doctor is asked about; whatever is None is not looked at."""

    model: str | None = Field(default=None, description="target model: directory or hub id")
    draft: str | None = Field(default=None, description="its draft")
    engine_python: str | None = Field(default=None, description="python of the engine's environment")
    engine_command: str | None = Field(default=None, description="command that starts the engine")
    gpus: str | None = Field(default=None, description="GPUs to be used; None looks at all")
    out: Path = Field(description="directory of studies")
    tracking_uri: str | None = Field(default=None, description="MLflow; None is a file in the directory of studies")


def examine(question: Question) -> Iterator[Check]:
    """All checks, in the order in which a study would stumble."""
    yield from check_host()
    gpus, found = check_gpus(question.gpus)
    yield from found
    release, check = check_engine(question)
    yield check
    yield from check_models(question, release, gpus)
    yield from check_disk(question.out)
    yield check_port()
    yield from check_clock()
    yield check_mlflow(question)


def check_host() -> Iterator[Check]:
    """Cores, memory, and the vector instructions that vLLM's CPU backend is built for."""
    cores = len(os.sched_getaffinity(0))
    yield _judged(
        "cores", f"{cores} usable", "the client and the engine share them; use a larger host" if cores < 4 else None
    )
    free = psutil.virtual_memory().available
    yield _judged(
        "memory",
        f"{_gib(free)} of {_gib(psutil.virtual_memory().total)} are free",
        "end other programs" if free < LOW_MEMORY_BYTES else None,
    )
    if platform.machine() in {"x86_64", "AMD64"}:
        flags = set(re.findall(r"\bavx\w*", Path("/proc/cpuinfo").read_text(encoding="utf-8")))
        best = next((name for name in ("avx512f", "avx2") if name in flags), None)
        remedy = "a CPU engine needs AVX2 or AVX-512; on this host only a GPU engine can run"
        yield _judged("vector unit", best or "neither AVX2 nor AVX-512", None if best else remedy)
    shared = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0  # noqa: S108 - measured, not written
    remedy = "engines pass data through it: remount it larger, or start the container with --shm-size or --ipc=host"
    yield _judged("shared memory", f"{_gib(shared)} are free", remedy if shared < LOW_SHARED_MEMORY_BYTES else None)


def check_gpus(wanted: str | None) -> tuple[tuple[Gpu, ...], list[Check]]:
    """The GPUs that would be used, and a check for the driver and for each of them."""
    try:
        nvml = open_nvml()
        if nvml is None:
            if wanted:
                return (), [_bad("GPU", "no NVIDIA driver on this host", f"install it, or leave out --gpus {wanted}")]
            return (), [_judged("GPU", "no NVIDIA driver; engines run on the CPU")]
        gpus = usable_gpus(nvml.gpus(), wanted)
        checks = [_judged("driver", f"NVIDIA {nvml.driver_version()}, {len(gpus)} usable GPUs")]
        busy = {gpu.uuid: busy_before_launch(nvml, [gpu]) for gpu in gpus}
    except GpuError as error:
        return (), [_bad("GPU", str(error), "see `nvidia-smi`")]
    for gpu in gpus:
        linked = f", NVLink to {','.join(map(str, gpu.nvlink_peers))}" if gpu.nvlink_peers else ""
        major, minor = gpu.compute_capability
        found = f"{gpu.name}, {_gib(gpu.memory_bytes)}, compute capability {major}.{minor}{linked}"
        sentence = next(iter(busy[gpu.uuid]), None)
        checks.append(
            _judged(gpu.label, f"{found}; {sentence}" if sentence else found, "free it" if sentence else None)
        )
    return gpus, checks


def check_engine(question: Question) -> tuple[Release | None, Check]:
    """The engine's command, its version from its environment's metadata, and whether that release is known."""
    try:
        argv = engine_argv(python=question.engine_python, command=question.engine_command)
    except UsageError as error:
        return None, _bad("engine", str(error), "install vLLM in an environment of its own and name it")
    version = engine_version(argv)
    if version is None:
        remedy = "install vLLM there, or, where the command is a wrapper, give --engine-version to `tune`"
        found = f"the version of {argv[0]} cannot be told"
        return None, (_bad if question.engine_python else _warn)("engine", found, remedy)
    try:
        release, warning = load_release(version)
    except SearchSpaceError as error:
        return None, _bad("engine", str(error), "upgrade vLLM")
    return release, _judged("engine", f"vLLM {version} ({argv[0]})", warning)


def check_models(question: Question, release: Release | None, gpus: tuple[Gpu, ...]) -> Iterator[Check]:
    """Model and draft: their configs, whether they fit each other, the release and the memory."""
    if question.model is None:
        if question.draft is not None:
            yield _bad("draft", "a draft without its model cannot be judged", "give --model too")
        return
    reading = "model"
    try:
        target = read_checkpoint(question.model)
        yield from _check_weights("model", target, gpus)
        if question.draft is None:
            return
        reading = "draft"
        draft = read_checkpoint(question.draft)
        check_draft_fits(draft, target, plain=True)
    except SearchSpaceError as error:
        yield _bad(reading, str(error), "see the path and the download")
        return
    yield from _check_weights("draft", draft, gpus)
    problem = release.draft_problem(draft, on_cpu=not gpus) if release and draft.draft_method else None
    if problem:
        yield _bad("draft", problem, "use another release, another draft, or a GPU")
        return
    longest = f", K up to {draft.max_speculative_tokens}" if draft.max_speculative_tokens else ""
    yield _judged("pair", f"{draft.draft_method or 'draft_model'}{longest}: fits {target.path}")


def _check_weights(name: str, checkpoint: Checkpoint, gpus: tuple[Gpu, ...]) -> Iterator[Check]:
    """Whether the weights are there, all of them, and could fit."""
    directory = read_directory(checkpoint.path)
    index = directory / "model.safetensors.index.json"
    named = set(re.findall(r'"([^"/]+\.safetensors)"', index.read_text(encoding="utf-8"))) if index.is_file() else set()
    missing = sorted(file for file in named if not (directory / file).is_file())
    files = [*directory.glob("*.safetensors"), *directory.glob("*.bin")]
    size = sum(file.stat().st_size for file in files)
    if missing or not files:
        lacks = f"{len(missing)} of {len(named)} files of its weights" if missing else "weights (*.safetensors)"
        yield _bad(
            name, f"{directory} lacks {lacks}", f"download it again, such as with `hf download {checkpoint.path}`"
        )
        return
    memory = sum(gpu.memory_bytes for gpu in gpus) or psutil.virtual_memory().total
    found = f"{', '.join(checkpoint.architectures) or 'no architecture'}, {_gib(size)} of weights in {directory}"
    remedy = f"the weights alone exceed the memory of {_gib(memory)}: quantise, or use more GPUs"
    yield _judged(name, found, remedy if size > memory else None)


def check_disk(out: Path) -> Iterator[Check]:
    """Room for logs, caches and results, and the right to write them."""
    place = out.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        yield _bad("disk", f"{place} cannot be written to", "choose another directory with --out")
    elif free < NO_DISK_BYTES:
        yield _bad(
            "disk", f"{_gib(free)} are free in {place}", "free some space, or choose another directory with --out"
        )
    else:
        remedy = "each configuration keeps a compile cache of up to some hundred MiB; free some space"
        yield _judged("disk", f"{_gib(free)} are free in {place}", remedy if free < LOW_DISK_BYTES else None)


def check_port() -> Check:
    """That an engine could listen on loopback, beside the socket that keeps its port."""
    try:
        reservation = PortReservation()
        try:
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("127.0.0.1", reservation.port))
                server.listen()
                with socket.create_connection(("127.0.0.1", reservation.port), timeout=5):
                    return _judged("ports", "an engine can listen on 127.0.0.1")
        finally:
            reservation.release()
    except OSError as error:
        return _bad(
            "ports", f"nothing can listen on 127.0.0.1 ({error})", "see the firewall and the container's network"
        )


def check_clock(wait_s: float = 0.2, now: Callable[[], float] = time.time) -> Iterator[Check]:
    """That wall clock and monotonic clock run alike, are kept right, and are fast to read."""
    wall, steady = now(), time.perf_counter()
    time.sleep(wait_s)
    step_s = (now() - wall) - (time.perf_counter() - steady)
    remedy = "something sets the clock: let NTP slew it; intervals are measured with the monotonic clock all the same"
    yield _judged(
        "clock",
        f"wall and monotonic clock differ by {abs(step_s) * 1000:.1f} ms over {wait_s:g} s",
        remedy if abs(step_s) > MAX_CLOCK_STEP_S else None,
    )
    tool = shutil.which("timedatectl")
    words = [tool, "show", "--property=NTPSynchronized", "--value"] if tool else []
    told = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False).stdout.strip() if tool else ""
    remedy = "start a time service (chrony, systemd-timesyncd), so that logs of several hosts agree"
    synchronised = {"yes": "synchronised", "no": "not synchronised"}.get(told, "not told here")
    yield _judged("time service", synchronised, remedy if told == "no" else None)
    file = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    source = file.read_text(encoding="ascii").strip() if file.is_file() else "unknown"
    remedy = "reading it is slow and disturbs measurements: boot with a TSC clock source"
    yield _judged("clock source", source, remedy if source in SLOW_CLOCK_SOURCES else None)


def check_mlflow(question: Question) -> Check:
    """Whether results can be logged: a server answers, or a file's directory can be written."""
    try:
        uri = check_no_password(question.tracking_uri) or os.environ.get(VARIABLE)
    except UsageError as error:
        return _bad("MLflow", str(error), f"set {VARIABLE}")
    parts = urlsplit(uri or "")
    if parts.scheme in {"http", "https"}:
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")
        try:
            request = urllib.request.Request(f"{shown}/health")  # noqa: S310 - http or https, see above
            with urllib.request.urlopen(request, timeout=MLFLOW_TIMEOUT_S):  # noqa: S310 - http or https, see above
                return _judged("MLflow", f"{shown} answers")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            remedy = "start it, or correct --tracking-uri; a study runs without it and `tune sync` logs afterwards"
            return _warn("MLflow", f"{shown} does not answer ({reason})", remedy)
    if uri is None or parts.scheme in {"", "file", "sqlite"}:
        path = parts.path.removeprefix("/") if parts.scheme == "sqlite" else parts.path
        place = Path(path or question.out).absolute()
        while not place.is_dir():
            place = place.parent
        said = f"a file in {place}"
        if not os.access(place, os.W_OK):
            return _warn("MLflow", f"{said}, which is read-only", "choose another place")
        return _judged("MLflow", said)
    return _judged("MLflow", f"{parts.scheme}: is not checked from here")


def read_directory(path: str) -> Path:
    """Where a checkpoint lies.

    Raises:
        SearchSpaceError: as `read_checkpoint`.
    """
    from search_spaces.checkpoint import read_config

    return read_config(path)[0]


def _judged(name: str, found: str, remedy: str | None = None) -> Check:
    """Fine, unless there is something to be done."""
    return Check(name=name, status="warning" if remedy else "ok", found=found, remedy=remedy)


def _warn(name: str, found: str, remedy: str) -> Check:
    return Check(name=name, status="warning", found=found, remedy=remedy)


def _bad(name: str, found: str, remedy: str) -> Check:
    return Check(name=name, status="problem", found=found, remedy=remedy)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB else f"{size_bytes / (1 << 20):.1f} MiB"
