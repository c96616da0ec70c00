"""`vllm.service`: a systemd unit that runs the engine of the host's own environment.

Quoting is that of systemd.syntax(7) and systemd.service(5): double quotes with C escapes, `%%` for a `%`, and in
command lines `$$` for a `$`. A control character is written as an escape, so that no value can begin a line.
"""

from tuner.exporters._deployment import PORT, deployment
from tuner.exporters._header import header
from tuner.records import Provenance, Recommendation

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """A unit; `vllm` is looked up on the PATH of the service."""
    deployed = deployment(recommendation, provenance)
    comments = [f"# {line}" for line in header(recommendation, provenance)]
    words = ["/usr/bin/env", "vllm", "serve", *deployed.serve, "--host", "127.0.0.1", "--port", str(PORT)]
    lines = [
        *comments,
        "# Adapt User= and PATH= to where vLLM is installed; put HF_TOKEN=... into the environment file, mode 600.",
        "[Unit]",
        f"Description={_specifiers(_description(recommendation))}",
        "After=network-online.target",
        "Wants=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        "EnvironmentFile=-/etc/default/vllm",
        'Environment="PATH=/opt/vllm/bin:/usr/local/bin:/usr/bin:/bin"',
        *(f"Environment={quoted(f'{name}={value}')}" for name, value in deployed.env.items()),
        "ExecStart=" + " ".join(command_word(word) for word in words),
        "Restart=on-failure",
        "RestartSec=10",
        "TimeoutStopSec=90",
        "KillMode=mixed",
        "LimitMEMLOCK=infinity",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def command_word(word: str) -> str:
    """One word of ExecStart=."""
    plain = word and all(c.isascii() and (c.isalnum() or c in "-_./:=,+@") for c in word)
    return word if plain else quoted(word.replace("$", "$$"))


def quoted(text: str) -> str:
    """A double-quoted string that systemd reads back as the text."""
    return '"' + _specifiers("".join(_escaped(c) for c in text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _description(recommendation: Recommendation) -> str:
    text = f"vLLM for {recommendation.condition}, config {recommendation.serve_config.id}"
    return "".join(c if c.isprintable() and c != "\\" else " " for c in text).strip()
