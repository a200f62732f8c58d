"""This process among the ranks of a run: who started it said where it is, and the process group is joined once.

The launcher (torchrun's agent) sets RANK, LOCAL_RANK, WORLD_SIZE and where to meet. gloo joins CPUs, NCCL GPUs; a CPU
group is there in both cases, for what ranks agree on between steps.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from assay.config.mesh import AXES, ONE_DEVICE, Mesh
from assay.parallel.meeting import PATIENCE, told_in_words


@dataclass(frozen=True)
class Ranks:
    """One rank's view of all."""

    rank: int = 0
    local_rank: int = 0
    layout: Mesh = ONE_DEVICE
    mesh: DeviceMesh | None = None
    """None on one device."""

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self.layout.size

    @property
    def place(self) -> dict[str, int]:
        """This rank's index along each axis."""
        return self.layout.at(self.rank)

    def noise(self, sequence_parts: int = 1) -> int:
        """Which random numbers this rank draws: those with other layers, rows or positions of the batch draw others.

        Those that share matrices hold the same positions, and must draw the same, unless these are in parts, too.
        """
        number = 0
        for axis in AXES if sequence_parts > 1 else AXES[:-1]:
            number = number * self.layout.degree(axis) + self.place[axis]
        return number

    def highest(self, *values: float) -> list[float]:
        """Each value's maximum over all ranks, on every rank: how they agree to stop, and on how long a step took."""
        if self.world == 1:
            return list(values)
        agreed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(agreed, dist.ReduceOp.MAX, group=_host_group())
        return [float(value) for value in agreed.tolist()]

    def meet(self) -> None:
        """Wait until every rank is here."""
        self.highest(0.0)

    def all_come(self, place: str, within: timedelta = timedelta(minutes=1)) -> bool:
        """Whether every rank says that it is at `place`, which has a new name each time.

        The store is asked, for ranks that are elsewhere may be in a collective, and would take this for its part.
        """
        if self.world == 1:
            return True
        store = PrefixStore(place, _get_default_store())
        store.set(str(self.rank), "")
        try:
            store.wait([str(rank) for rank in range(self.world)], within)
        except dist.DistStoreError:
            return False
        return True

    def gather(self, text: str) -> list[str]:
        """What every rank says, in order of ranks, on every rank."""
        if self.world == 1:
            return [text]
        said: list[str] = [""] * self.world
        dist.all_gather_object(said, text, group=_host_group())
        return said


ALONE = Ranks()


def local_rank() -> int:
    """The number that a launcher gave to this process among those of its machine; 0 where there was none."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def joined(layout: Mesh, device: torch.device) -> Iterator[Ranks]:
    """The ranks of `layout`, met and left.

    Raises `RuntimeError` where fewer or more processes were started, `UsageError` where they cannot meet.
    """
    if layout.size == 1:
        yield ALONE
        return
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != layout.size:
        raise RuntimeError(f"{layout} needs {layout.size} processes, and {started} were started")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with told_in_words():
        dist.init_process_group("cuda:nccl,cpu:gloo" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        mesh = init_device_mesh(device.type, layout.shape, mesh_dim_names=AXES)
        ranks = Ranks(dist.get_rank(), local_rank(), layout, mesh)
        yield ranks
        ranks.meet()  # gloo ends a process whose peer has left in the middle of a message
    finally:
        dist.destroy_process_group()


def _host_group() -> dist.ProcessGroup | None:
    """The default group: it has a gloo backend for tensors of the host beside NCCL."""
    return dist.group.WORLD
