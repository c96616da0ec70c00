"""Which runner a study's engines come from: a command on this host, an image, or a URL where one runs already.

Exactly one is named. Whatever it is, the rest of the tuner sees only `runners.Runner`.
"""

import os
import re
import shutil
from pathlib import Path

from runners import AttachedRunner, ContainerRunner, LocalRunner, Runner
from tuner.config import TuneConfig
from tuner.engine_command import engine_version
from tuner.errors import UsageError

_VERSION_IN_TAG = re.compile(r":v?(\d+\.\d+\.\d+)\b")


def choose_runner(config: TuneConfig, *, with_gpus: bool) -> Runner:
    """The runner for a study.

    Raises:
        UsageError: the variable that should hold the key is not set.
    """
    if config.engine_url is not None:
        return AttachedRunner(config.engine_url, _api_key(config.engine_api_key_env))
    if config.engine_image is not None:
        models = (config.model, config.draft or "")
        local = tuple(path.absolute() for path in map(Path, models) if str(path) != "." and path.is_dir())
        return ContainerRunner(
            config.engine_image,
            command=config.container_command,
            read_only=local,
            writable=(config.directory.absolute() / "cache",),
            gpus="all" if with_gpus else None,
        )
    return LocalRunner()


def planned_version(config: TuneConfig) -> str | None:
    """The vLLM version that can be told before anything runs: as named, of the command, or of the image's tag."""
    if config.engine_version or config.engine_url is not None:
        return config.engine_version
    if config.engine_image is not None:
        found = _VERSION_IN_TAG.search(config.engine_image)
        return found[1] if found else None
    return engine_version(config.engine_argv)


def container_command(named: str | None) -> str:
    """The docker or podman to call, with its full path.

    Raises:
        UsageError: there is none.
    """
    for name in (named,) if named else ("docker", "podman"):
        if found := shutil.which(name):
            return str(Path(found).absolute())
    raise UsageError(f"no {named or 'docker or podman'} on this host; name one with --container-command, or a command")


def check_one_engine(*, python: str | None, command: str | None, image: str | None, url: str | None) -> None:
    """Refuses two engines at once.

    Raises:
        UsageError: more than one is named.
    """
    given = {"--engine-python": python, "--engine-command": command, "--engine-image": image, "--engine-url": url}
    named = [option for option, value in given.items() if value]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} name {len(named)} engines; give one")
    if url and not re.match(r"https?://[^/\s]+", url):
        raise UsageError(f"--engine-url {url!r} is no URL such as http://127.0.0.1:8000")


def _api_key(variable: str | None) -> str:
    if variable is None:
        return ""
    if not os.environ.get(variable):
        raise UsageError(f"--engine-api-key-env {variable}: this variable is not set; export the engine's key in it")
    return os.environ[variable]
