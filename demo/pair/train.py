"""Trains the demo pair from nothing: tokenizer, target, then the draft on the target's own generations.

Run it from the repository root with the engine environment's Python (torch, transformers, safetensors):

    OMP_WAIT_POLICY=PASSIVE python -m demo.pair.train --out demo/models

It prints its progress, and continues from its checkpoints when it is started again with the same work folder. The
passive wait policy matters when anything else runs: threads that spin for each other make a step ten times slower.
"""

import argparse
import dataclasses
from pathlib import Path

import torch

from demo.pair.settings import PairSettings
from demo.pair.target import export_target, train_target
from demo.pair.tokenizer import train_tokenizer

TARGET_FOLDER, DRAFT_FOLDER = "target", "draft"


def _arguments() -> tuple[PairSettings, Path, Path]:
    defaults = PairSettings()
    parser = argparse.ArgumentParser(description="Train the demo target and its DFlash draft on this machine's CPU.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the two checkpoints")
    parser.add_argument("--work", type=Path, default=Path("demo/build"), help="folder for resumable state")
    parser.add_argument("--target-minutes", type=float, default=defaults.target.minutes)
    parser.add_argument("--draft-minutes", type=float, default=defaults.draft.minutes)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parsed = parser.parse_args()
    settings = dataclasses.replace(
        defaults,
        seed=parsed.seed,
        target=dataclasses.replace(defaults.target, minutes=parsed.target_minutes),
        draft=dataclasses.replace(defaults.draft, minutes=parsed.draft_minutes),
    )
    return settings, parsed.out, parsed.work


def main() -> None:
    """Train and export both models."""
    settings, out, work = _arguments()
    print(settings, flush=True)
    torch.set_num_threads(settings.threads)
    work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(settings.shape.vocab_size, settings.seed, out / TARGET_FOLDER)
    target = train_target(settings, tokenizer, work)
    export_target(target, out / TARGET_FOLDER)
    print("target exported", flush=True)
    # imported late so that a target run can start before anything of the draft is needed
    from demo.pair.draft import export_draft, train_draft  # noqa: PLC0415

    draft = train_draft(settings, tokenizer, target, work)
    export_draft(draft, settings, out / DRAFT_FOLDER)
    print("draft exported", flush=True)


if __name__ == "__main__":
    main()
