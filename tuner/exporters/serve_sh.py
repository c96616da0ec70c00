"""`serve.sh`: a shell script that starts the engine; further arguments such as --port are passed on."""

import shlex

from tuner.exporters._header import header
from tuner.records import Provenance, Recommendation


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """A POSIX shell script with every word quoted."""
    config = recommendation.serve_config
    lines = ["#!/bin/sh", *(f"# {line}" for line in header(recommendation, provenance))]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in config.env.items()]
    words = [shlex.quote(word) for word in config.to_argv()]
    lines.append("exec vllm serve " + " \\\n  ".join(_pairs(words)) + ' "$@"')
    return "\n".join(lines) + "\n"


def _pairs(words: list[str]) -> list[str]:
    """A flag and its values on one line."""
    grouped: list[str] = []
    for word in words:
        if word.startswith("--") or not grouped:
            grouped.append(word)
        else:
            grouped[-1] += f" {word}"
    return grouped
