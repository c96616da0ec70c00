"""Shared pieces of both trainings: a wall-clock budget with its learning rate, and checkpoints that survive a kill."""

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn


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


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = lr


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
