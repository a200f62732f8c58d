"""Rendezvous of processes before they form a process group: torch's store at MASTER_ADDR:MASTER_PORT.

torchrun's agent serves the store on its first host; without torchrun, rank 0 does, and the port must be free there.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import DistError
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

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
