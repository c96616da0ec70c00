"""The loop that both trainings share: a wall-clock budget with its learning rate, checkpoints that survive a kill.

What a step computes is the caller's. Progress goes to standard output, one line every so many steps.
"""

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Budget:
    """Counts the seconds of training, over restarts, and derives the cosine learning rate from them."""

    def __init__(self, minutes: float, peak_lr: float, warmup_steps: int) -> None:
        self.total_s = minutes * 60
        self.step = 0
        self._peak_lr = peak_lr
        self._warmup_steps = warmup_steps
        self._before_s = 0.0
        self._start = time.monotonic()

    @property
    def used_s(self) -> float:
        """Seconds of training so far, those before a restart included."""
        return self._before_s + time.monotonic() - self._start

    @property
    def left(self) -> bool:
        """Whether another step fits."""
        return self.used_s < self.total_s

    def resume(self, used_s: float, step: int) -> None:
        """Continue where a checkpoint stopped."""
        self._before_s, self.step, self._start = used_s, step, time.monotonic()

    def lr(self) -> float:
        """Cosine from the peak to a twentieth of it, after a linear warm-up."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, self.used_s / self.total_s)))
        return self._peak_lr * min(1.0, (self.step + 1) / self._warmup_steps) * (0.95 * cosine + 0.05)


class Progress:
    """Running averages of a training's figures, printed as one line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._averages: dict[str, float] = {}

    def add(self, figures: dict[str, float]) -> None:
        """Fold new figures into the averages (weight 1 in 20)."""
        for name, value in figures.items():
            self._averages[name] = 0.95 * self._averages.get(name, value) + 0.05 * value

    def show(self, budget: Budget) -> None:
        """Print step, seconds used and the averages."""
        parts = " ".join(f"{name}={value:.3f}" for name, value in sorted(self._averages.items()))
        print(f"{self._name} step={budget.step} used_s={budget.used_s:.0f} {parts}", flush=True)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write atomically: a kill during the write leaves the previous checkpoint."""
    fresh = path.with_suffix(".new")
    torch.save(state, fresh)
    fresh.replace(path)


class BFloat16Copy:
    """Float32 master weights for a network that computes in bfloat16 (a third faster on CPUs with AVX512-BF16)."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.master = [nn.Parameter(p.detach().float().clone()) for p in network.parameters()]
        network.to(torch.bfloat16)

    def pull_gradients(self) -> None:
        """Move the network's gradients to the master weights."""
        for master, parameter in zip(self.master, self._network.parameters(), strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None

    def push(self, values: Iterable[torch.Tensor] | None = None) -> None:
        """Copy the master weights (or the given values, into both) to the network."""
        with torch.no_grad():
            if values is not None:
                for master, value in zip(self.master, values, strict=True):
                    master.copy_(value)
            for master, parameter in zip(self.master, self._network.parameters(), strict=True):
                parameter.copy_(master)


class Optimisation(Protocol):
    """The optimiser's numbers, as the settings hold them."""

    @property
    def peak_lr(self) -> float:
        """Learning rate after the warm-up."""

    @property
    def warmup_steps(self) -> int:
        """Steps of linear warm-up."""

    @property
    def weight_decay(self) -> float:
        """AdamW's decoupled decay."""


Step = Callable[[], tuple[Tensor, dict[str, float]]]
"""Draws a batch; returns its loss and figures to print."""


def fit(
    network: nn.Module,
    begin: Callable[[int], Step],
    options: Optimisation,
    *,
    name: str,
    minutes: float,
    checkpoint: Path,
    checkpoint_s: float,
    show_every: int,
) -> None:
    """Train a network in place; it computes in bfloat16 and is left so.

    Args:
        network: Float32 weights to start from, unless the checkpoint exists.
        begin: Called once with the number of steps already done; returns the step.
        options: The optimiser's numbers.
        name: Printed in front of every progress line.
        minutes: Wall-clock budget, earlier runs of the same checkpoint included.
        checkpoint: Read at the start, written every `checkpoint_s` seconds and at the end.
        checkpoint_s: Seconds between two checkpoints.
        show_every: Steps between two progress lines.
    """
    weights = BFloat16Copy(network)
    optimizer = torch.optim.AdamW(weights.master, betas=(0.9, 0.95), weight_decay=options.weight_decay)
    budget = Budget(minutes, options.peak_lr, options.warmup_steps)
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        weights.push(state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        budget.resume(state["used_s"], state["step"])
    step, progress, saved = begin(budget.step), Progress(name), time.monotonic()
    while budget.left:
        for group in optimizer.param_groups:
            group["lr"] = budget.lr()
        loss, figures = step()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        weights.pull_gradients()
        torch.nn.utils.clip_grad_norm_(weights.master, 1.0)
        optimizer.step()
        weights.push()
        budget.step += 1
        progress.add(figures)
        if budget.step % show_every == 0:
            progress.show(budget)
        if time.monotonic() - saved > checkpoint_s or not budget.left:
            state = {"weights": [w.detach() for w in weights.master], "optimizer": optimizer.state_dict()}
            save_checkpoint(checkpoint, state | {"used_s": budget.used_s, "step": budget.step})
            saved = time.monotonic()
