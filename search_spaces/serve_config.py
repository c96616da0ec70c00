"""A serve config: everything that decides how `vllm serve` is started, as argv and as YAML, with a stable id.

Holds no choice logic; space.py makes serve configs from knob values. Host, port and API key are the launcher's business
and are refused here.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from search_spaces.errors import EngineArgumentError
from search_spaces.knobs import Scalar, unsafe

OWNED_BY_LAUNCHER = ("host", "port", "api-key", "uds")
SECRETS = ("hf-token",)
Argument = bool | int | float | str | list[Any] | dict[str, Any]


class ServeConfig(BaseModel):
    """One way to start the engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="target model: directory or hub id")
    values: dict[str, Scalar] = Field(description="knob values that made this config; null leaves it to the engine")
    fixed_args: dict[str, Argument] = Field(
        description="vLLM flags without dashes that every config of the study shares"
    )
    tuned_args: dict[str, Argument] = Field(description="vLLM flags without dashes that the knob values became")
    env: dict[str, str] = Field(default_factory=dict, description="environment variables of the engine")
    identity: dict[str, Scalar] = Field(
        description="values that distinguish configs: alive and not the engine's default"
    )

    @cached_property
    def id(self) -> str:
        """Ten hex digits, equal for configs that start the same engine."""
        launch = {"model": self.model, "knobs": self.identity, "fixed": self.fixed_args, "env": self.env}
        canonical = json.dumps(launch, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:10]

    @property
    def engine_args(self) -> dict[str, Argument]:
        """All vLLM flags without dashes; a tuned one replaces a fixed one of the same name."""
        return {**self.fixed_args, **self.tuned_args}

    def to_argv(self) -> tuple[str, ...]:
        """Arguments after `vllm serve`, model first."""
        argv = [self.model]
        for flag, value in self.engine_args.items():
            argv += _flag_argv(flag, value)
        return tuple(argv)

    def to_yaml(self) -> str:
        """The file for `vllm serve --config`."""
        document: dict[str, Any] = {"model": self.model}
        for flag, value in self.engine_args.items():
            # `no-x: true` is understood by every release; `x: false` only by recent ones.
            if value is False:
                document[f"no-{flag}"] = True
            else:
                document[flag] = value
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=False, allow_unicode=True)
        if set(text).isdisjoint("\x85\u2028\u2029"):
            return text
        # PyYAML writes these line ends as they are, and a reader folds them into spaces.
        return yaml.safe_dump(document, sort_keys=False, default_flow_style=False)

    def label(self) -> str:
        """A short human name, e.g. `dflash K=7, kv_block_size=32`."""
        if not self.values and not self.tuned_args:
            return "as it is"  # an engine that somebody else configured
        method = self.identity.get("method", "none")
        if method == "none":
            parts = ["no speculation"]
        else:
            k = self.identity.get("num_speculative_tokens")
            parts = [str(method) if k is None else f"{method} K={k}"]
        shown = (k for k in self.identity if k not in {"method", "num_speculative_tokens"})
        parts += [f"{name}={_short(self.identity[name])}" for name in shown]
        return ", ".join(parts)


def parse_engine_args(tokens: Sequence[str]) -> dict[str, Argument]:
    """Parses fixed engine arguments such as ("--dtype", "float32", "--enforce-eager").

    Raises:
        EngineArgumentError: a value without a flag, or a flag that the launcher owns.
    """
    parsed: dict[str, Argument] = {}
    flag = None
    for token in tokens:
        if token.startswith("--"):
            flag, equals, value = token[2:].partition("=")
            if flag in OWNED_BY_LAUNCHER:
                raise EngineArgumentError(f"engine argument --{flag} is set by the tuner for each launch; leave it out")
            if flag in SECRETS:
                raise EngineArgumentError(
                    f"engine argument --{flag} would be written into exports; set it in the environment instead"
                )
            if equals:
                parsed[flag] = _typed(value)
                flag = None
            else:
                parsed[flag] = True
        elif flag is None:
            raise EngineArgumentError(f"engine argument {token!r} follows no --flag; write it as --flag={token}")
        else:
            parsed[flag] = _typed(token)
            flag = None
    speculative = parsed.get("speculative-config")
    for key, value in speculative.items() if isinstance(speculative, dict) else ():
        reason = unsafe(key, [value])
        if reason:
            raise EngineArgumentError(f"engine argument --speculative-config: {reason}")
    return {
        name.removeprefix("no-"): False if name.startswith("no-") and value is True else value
        for name, value in parsed.items()
    }


def _typed(text: str) -> Argument:
    if text[:1] == "{":
        try:
            loaded: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError as error:
            raise EngineArgumentError(f"engine argument {text!r} is not valid JSON ({error})") from error
        return loaded
    for convert in (int, float):
        try:
            number = convert(text)
        except ValueError:
            continue
        # "1e5" may be a revision and "0.90" must reach the engine as it was written.
        return number if str(number) == text and text[-1].isdigit() else text
    return text


def _flag_argv(flag: str, value: Argument) -> list[str]:
    if value is True:
        return [f"--{flag}"]
    if value is False:
        return [f"--no-{flag}"]
    if isinstance(value, dict):
        return [f"--{flag}", json.dumps(value)]
    if isinstance(value, list):
        return [f"--{flag}", *map(str, value)]
    return [f"--{flag}", str(value)]


def _short(value: Scalar) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
