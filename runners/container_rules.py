"""What docker and podman write when a container cannot be run: rules that are read before ``runners.failure_rules``.

The words are those of Docker 20 to 28 and Podman 4 and 5.
"""

from __future__ import annotations

import re

from runners.failure_rules import FailureRule

CONTAINER_RULES: tuple[FailureRule, ...] = (
    FailureRule(
        "bad_command",
        re.compile(
            r"(?P<why>Cannot connect to the Docker daemon[^\n.]*|permission denied while trying to connect to the "
            r"Docker daemon[^\n.]*|Cannot connect to Podman[^\n.]*)"
        ),
        "containers cannot be run here ({why}); start the daemon, or let this user reach it",
        infrastructure=True,
    ),
    FailureRule(
        "bad_command",
        re.compile(
            r"(?P<why>pull access denied for [^\s,]+|manifest for \S+ not found|No such image: \S+|"
            r"(?:initializing source|reading manifest) [^\n]*(?:manifest unknown|access to the resource is denied))"
        ),
        "the image cannot be had ({why}); check --engine-image, or pull it first",
    ),
    FailureRule(
        "port",
        re.compile(r"(?:port is already allocated|rootlessport listen tcp [^\n]*address already in use)"),
        "the port was taken by another process; launch again",
        infrastructure=True,
    ),
    FailureRule(
        "driver",
        re.compile(
            r"(?P<why>could not select device driver[^\n]*|nvidia-container-cli: [^\n]*|"
            r"unresolvable CDI devices [^\n]*|failed to discover GPU vendor[^\n]*)"
        ),
        "the container gets no GPU ({why}); install the NVIDIA container toolkit, and check nvidia-smi in a container",
        infrastructure=True,
    ),
    FailureRule(
        "bad_command",
        re.compile(r"(?:invalid mount config|error mounting|statfs) (?P<why>[^\n]*)"),
        "the container cannot see a directory ({why}); check that it exists on the daemon's host",
    ),
)
