"""Slots: the GPUs of one engine, chosen so that they reach each other fast, and the environment that binds it there."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runners.gpu.device import Gpu, GpuError


@dataclass(frozen=True, slots=True)
class Slot:
    """GPUs that one engine may use."""

    gpus: tuple[Gpu, ...]

    @property
    def env(self) -> dict[str, str]:
        """What makes an engine see these GPUs and no others, numbered as the driver numbers them."""
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # else CUDA puts the fastest first, and the numbers mean other GPUs
            "CUDA_VISIBLE_DEVICES": ",".join(gpu.visible_as for gpu in self.gpus),
        }

    @property
    def cpus(self) -> tuple[int, ...]:
        """Cores near its GPUs; empty when unknown."""
        return tuple(sorted({cpu for gpu in self.gpus for cpu in gpu.cpus}))

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """Memory nodes that its GPUs are attached to; empty when one is unknown."""
        nodes = {gpu.numa_node for gpu in self.gpus}
        return () if None in nodes else tuple(sorted(node for node in nodes if node is not None))

    def pinning(self) -> tuple[str, ...]:
        """Words to put before the engine's command, so that it computes and allocates near its GPUs; may be none.

        Needs `numactl` or, for the cores alone, `taskset`. Nothing is pinned where that would change nothing: all cores
        of this process are near, or none of them is.
        """
        allowed = os.sched_getaffinity(0)
        near = sorted(allowed & set(self.cpus))
        if not near or len(near) == len(allowed):
            return ()
        cores = ",".join(map(str, near))
        if len(self.numa_nodes) == 1 and (numactl := shutil.which("numactl")):
            # Preferred, not bound: an engine that fills its node must spill over, not be killed.
            return (numactl, f"--physcpubind={cores}", f"--preferred={self.numa_nodes[0]}", "--")
        return (taskset, "-c", cores) if (taskset := shutil.which("taskset")) else ()

    @property
    def label(self) -> str:
        """Such as "GPU 0,1 (NVIDIA H100 80GB HBM3)"."""
        return f"GPU {','.join(gpu.visible_as for gpu in self.gpus)} ({self.gpus[0].name})"


def usable_gpus(gpus: Sequence[Gpu], wanted: str | None = None) -> tuple[Gpu, ...]:
    """GPUs that engines may be given: all, or those of a list in the form of CUDA_VISIBLE_DEVICES ("0,1" or UUIDs).

    A GPU that is divided by MIG is not one of them; its instances are.

    Raises:
        GpuError: a name in the list is none of them.
    """
    usable = [gpu for gpu in gpus if not gpu.mig_parent]
    if wanted is None:
        return tuple(usable)
    chosen = []
    for name in filter(None, (part.strip() for part in wanted.split(","))):
        match = next((gpu for gpu in usable if name == gpu.visible_as or gpu.uuid.startswith(name)), None)
        if match is None:
            divided = any(gpu.mig_parent and name in {str(gpu.index), gpu.uuid} for gpu in gpus)
            why = "is divided by MIG; name one of its instances" if divided else "does not exist"
            known = ", ".join(gpu.visible_as for gpu in usable) or "none"
            raise GpuError(f"GPU {name!r} {why} (usable here: {known})")
        chosen.append(match)
    return tuple(dict.fromkeys(chosen))


def make_slots(gpus: Sequence[Gpu], size: int) -> tuple[Slot, ...]:
    """Divides the GPUs into slots of `size`, each of one kind of GPU and as close together as there are.

    NVLink counts more than a common memory node, and that more than neighbouring numbers.

    Raises:
        GpuError: not even one slot can be made.
    """
    slots = []
    left = list(gpus)
    while len(left) >= size:
        groups = (group for group in itertools.combinations(left, size) if _may_share(group))
        best = max(groups, key=_closeness, default=None)
        if best is None:
            break
        slots.append(Slot(best))
        left = [gpu for gpu in left if gpu not in best]
    if not slots:
        have = ", ".join(f"{gpu.visible_as} ({gpu.name})" for gpu in gpus) or "none"
        raise GpuError(
            f"an engine needs {size} GPUs of one kind, here are: {have}; lower --tensor-parallel-size, or free GPUs"
            + ("; MIG instances cannot be joined" if any(gpu.mig_instance for gpu in gpus) else "")
        )
    return tuple(sorted(slots, key=lambda slot: slot.gpus[0].index))


def _may_share(group: Sequence[Gpu]) -> bool:
    """Tensor parallelism needs equal GPUs, and no two MIG instances can talk to each other."""
    kinds = {(gpu.name, gpu.memory_bytes) for gpu in group}
    return len(kinds) == 1 and (len(group) == 1 or not any(gpu.mig_instance for gpu in group))


def _closeness(group: Sequence[Gpu]) -> tuple[int, int, int]:
    pairs = list(itertools.combinations(group, 2))
    linked = sum(b.index in a.nvlink_peers for a, b in pairs)
    same_node = sum(a.numa_node is not None and a.numa_node == b.numa_node for a, b in pairs)
    return linked, same_node, -_spread(gpu.index for gpu in group)


def _spread(numbers: Iterable[int]) -> int:
    """How far apart, and how far from the first: of equal groups the one with the lowest numbers is taken."""
    found = list(numbers)
    return (max(found) - min(found)) * 1000 + min(found)
