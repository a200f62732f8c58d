"""This process as a rank of a run: the launcher assigns its rank, and the process group is joined once.

The launcher (torchrun's agent) sets RANK, LOCAL_RANK, WORLD_SIZE and the address of the store. CPUs use gloo, GPUs
NCCL. There is a CPU group in both cases, for agreements between ranks from step to step.

Processes meet at torch's store before they form a process group. The store is at MASTER_ADDR:MASTER_PORT. The agent of
torchrun serves it on its first host; without torchrun, rank 0 does, and the port must be free there.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import DistError
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store
from torch.distributed.rendezvous import rendezvous

from assay.config.mesh import AXES, ONE_DEVICE, Mesh
from assay.errors import UsageError

ARRIVAL = timedelta(minutes=5)
"""Timeout of a process for the store to exist."""

PATIENCE = timedelta(minutes=30)
"""Timeout of a process for the others, whose turn may be granted late."""


@dataclass(frozen=True)
class Meeting:
    """Connection of one process to the store."""

    store: Store
    rank: int
    world: int

    @property
    def world_here(self) -> int:
        """Return the number of processes on this machine."""
        return local_world()

    def say(self, key: str, text: str) -> None:
        """Store a text for the others. Raises `UsageError` if the store is gone."""
        with told_in_words():
            self.store.set(key, text)

    def hear(self, key: str) -> str:
        """Wait for the text of a key and return it. Raises `UsageError` if it is not stored within `PATIENCE`."""
        with told_in_words():
            return str(self.store.get(key).decode())


def meeting() -> Meeting:
    """Connect to the store that the environment names. Raises `UsageError` if there is none."""
    with told_in_words():
        store, rank, world = next(rendezvous("env://", timeout=ARRIVAL))
        store.set_timeout(PATIENCE)
    return Meeting(store, rank, world)


def local_world() -> int:
    """Return the number of processes that a launcher has started on this machine; 1 without a launcher."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


@contextmanager
def told_in_words() -> Iterator[None]:
    """Turn torch's errors of a failed rendezvous into one `UsageError`."""
    try:
        yield
    except (DistError, ValueError) as error:
        port = os.environ.get("MASTER_PORT", "none")
        if "EADDRINUSE" in str(error):
            raise UsageError(f"the port {port} is in use on this host; set MASTER_PORT to a free one") from error
        place = f"{os.environ.get('MASTER_ADDR', 'no host')}:{port}"
        raise UsageError(f"the processes could not meet at {place}: {str(error).splitlines()[0]}") from error


@dataclass(frozen=True)
class Ranks:
    """This rank and the layout of all ranks, with the operations that all ranks do together."""

    rank: int = 0
    local_rank: int = 0
    layout: Mesh = ONE_DEVICE
    mesh: DeviceMesh | None = None
    """Torch's mesh of all ranks; None on one device."""

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return self.layout.size

    @property
    def place(self) -> dict[str, int]:
        """Return this rank's index along each axis."""
        return self.layout.at(self.rank)

    def noise(self, sequence_parts: int = 1) -> int:
        """Return the number of this rank's random stream. Ranks with other layers, rows or positions draw others.

        Ranks of tp hold the same positions and must draw the same numbers, unless their positions are divided too.
        """
        number = 0
        for axis in AXES if sequence_parts > 1 else AXES[:-1]:
            number = number * self.layout.degree(axis) + self.place[axis]
        return number

    def highest(self, *values: float) -> list[float]:
        """Return each value's maximum over all ranks; ranks agree by it on a stop and on the time of a step."""
        if self.world == 1:
            return list(values)
        agreed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(agreed, dist.ReduceOp.MAX, group=_host_group())
        return [float(value) for value in agreed.tolist()]

    def meet(self) -> None:
        """Wait until every rank has called this."""
        self.highest(0.0)

    def all_come(self, place: str, within: timedelta = timedelta(minutes=1)) -> bool:
        """True if every rank reports within the timeout that it is at `place`, a name that is used only once.

        The store is used, because ranks that are elsewhere may be in a collective and would mistake another for it.
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
        """Return the texts of all ranks, in order of ranks, on every rank."""
        if self.world == 1:
            return [text]
        said: list[str] = [""] * self.world
        dist.all_gather_object(said, text, group=_host_group())
        return said


ALONE = Ranks()


def local_rank() -> int:
    """Return this process's number among those of its machine, as set by a launcher; 0 without a launcher."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def join_ranks(layout: Mesh, device: torch.device) -> Iterator[Ranks]:
    """Join the process group of `layout` and leave it after the block.

    Raises `RuntimeError` if the number of started processes differs, `UsageError` if they cannot meet.
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
    """Return the default group, which has a gloo backend for host tensors in addition to NCCL."""
    return dist.group.WORLD
