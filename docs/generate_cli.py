#!/usr/bin/env python3
"""Writes docs/cli.md from the command line itself, so that the two cannot differ.

    .venv/bin/python docs/generate_cli.py           # write
    .venv/bin/python docs/generate_cli.py --check   # exit 1 when the file is not current

The text of commands and options is that of `tune --help`; only the head and the exit codes are added here. The exit
codes are read from the error classes.
"""

import argparse
import re
import sys
from pathlib import Path

from tuner import errors
from tuner.cli import app

TARGET = Path(__file__).with_name("cli.md")
HEAD = """# Command line

Made by `.venv/bin/python docs/generate_cli.py` from the program; do not edit. The same text: `tune --help`,
`tune COMMAND --help`. `dflash-tune` is the same program under a name that no other package uses.

"""
CODES = {
    0: "done; for `tune`, also when the answer is to keep the baseline",
    1: "a defect of the tuner: run again with `--debug` and report it",
    2: "bad input or usage",
    3: "no engine could be started, or the baseline's did not survive its measurements",
    4: "interrupted; `tune resume` goes on",
    5: "nothing that was measured meets the SLO",
    6: "`tune verify`: worse than what it was compared with, or outputs changed; same and better are 0",
}


def main() -> int:
    """Writes the file, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when docs/cli.md is not current")
    arguments = parser.parse_args()
    text = document()
    if not arguments.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{TARGET} is not current; run docs/generate_cli.py\n")
    return 1


def document() -> str:
    """The whole of docs/cli.md."""
    pages = app.generate_docs(output_format="markdown", heading_level=2)
    # The list of commands that follows is a table of contents already.
    pages = re.sub(r"## Table of Contents\n.*?(?=\*\*Commands\*\*)", "", pages, flags=re.DOTALL)
    return HEAD + pages.strip() + "\n\n" + _exit_codes()


def _exit_codes() -> str:
    raised = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.TunerError)
    }
    undescribed = raised - set(CODES)
    if undescribed:
        raise ValueError(
            f"exit codes {sorted(undescribed)} of tuner/errors.py have no description in docs/generate_cli.py"
        )
    rows = [f"| {code} | {meaning} |" for code, meaning in CODES.items()]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
