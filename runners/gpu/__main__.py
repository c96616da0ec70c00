"""`python -m runners.gpu`: prints a recording of this host's GPUs, for `RecordedNvml` and for bug reports."""

import argparse
import sys

from runners.gpu.nvml import open_nvml
from runners.gpu.recorded import record


def main() -> int:
    """Prints a recording of this host's GPUs."""
    parser = argparse.ArgumentParser(description="Record what this host's NVIDIA driver says, as JSON.")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to sample")
    options = parser.parse_args()
    nvml = open_nvml()
    if nvml is None:
        sys.stderr.write("no NVIDIA driver on this host\n")
        return 2
    made = record(
        nvml, samples=max(2, int(options.seconds * 5)), interval_s=0.2, about="recorded with python -m runners.gpu"
    )
    sys.stdout.write(made.model_dump_json(indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
