"""An engine that prints all it knows and all that might hurt a reader, then is the simulated one, or fails."""

import os
import sys

TRICKS = (
    "$(touch canary)",
    "`touch canary`",
    "'; touch canary; #",
    "<script>HOSTILE()</script>",
    "<img src=x onerror=HOSTILE()>",
    '!!python/object/apply:os.system ["touch canary"]',
    "{{ 7*7 }}${jndi:x}",
    "\x1b]0;HOSTILE\x07",
    "../../../../canary",
)


def main() -> None:
    """Prints, and becomes another program."""
    for trick in TRICKS:
        sys.stderr.write(f"ERROR {trick}\n")
    sys.stderr.write(f"DEBUG environ: {dict(os.environ)!r}\n" + "x" * 2**21 + "\n")
    sys.stderr.flush()
    if '"num_speculative_tokens": 15' in " ".join(sys.argv):
        last = f"{TRICKS[0]} {TRICKS[3]} {TRICKS[7]} HF_TOKEN={os.environ['HF_TOKEN']}"
        sys.stderr.write(f"Traceback (most recent call last):\n  File x\nRuntimeError: {last}\n")
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "runners.simulated", *sys.argv[1:]])  # noqa: S606 - one process, as an engine is


if __name__ == "__main__":
    main()
