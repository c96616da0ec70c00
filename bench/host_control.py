"""A fixed piece of work with the engine's footprint: how steady is this host by itself?

    .venv/bin/python bench/host_control.py --seconds 60

Multiplies through 32 thin layers, 26 MB of weights as in the demo's target, on the first core, where the CPU engine
computes. Prints passes per second. What varies here varies in any measurement of an engine.
"""

import argparse
import os
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is imported: the engine has one computing core

import numpy as np

LAYERS, HIDDEN, INNER, VOCABULARY = 32, 128, 736, 4096


def main() -> None:
    """Works for the time asked for and prints the rate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    random = np.random.default_rng(0)
    layers = [
        [random.standard_normal(shape, dtype=np.float32) for shape in ((HIDDEN, INNER), (INNER, HIDDEN))]
        for _ in range(LAYERS)
    ]
    head = random.standard_normal((HIDDEN, VOCABULARY), dtype=np.float32)
    start = random.standard_normal((8, HIDDEN), dtype=np.float32)
    passes, began_s = 0, time.perf_counter()
    while time.perf_counter() < began_s + seconds:
        hidden = start
        for wide, narrow in layers:
            hidden = np.tanh(hidden @ wide @ narrow * 1e-2)
        np.argmax(hidden @ head, axis=1)
        passes += 1
    print(f"{passes / (time.perf_counter() - began_s):.2f}")


if __name__ == "__main__":
    main()
