"""Where started processes find each other before they are a process group: torch's store at MASTER_ADDR:MASTER_PORT.

torchrun's agent holds the store on its first host; without it rank 0 does, and then the port must be free there.
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
"""How long a process waits for the place to be there."""

PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others, who may be granted their turn late."""


@dataclass(frozen=True)
class Meeting:
    """One process's place at the store."""

    store: Store
    rank: int
    world: int

    @property
    def world_here(self) -> int:
        """How many of the processes this machine has."""
        return local_world()

    def say(self, key: str, text: str) -> None:
        """Leave a text for the others. Raises `UsageError` where they have gone."""
        with told_in_words():
            self.store.set(key, text)

    def hear(self, key: str) -> str:
        """The text that somebody leaves, once it is there. Raises `UsageError` where nobody does."""
        with told_in_words():
            return str(self.store.get(key).decode())


def meeting() -> Meeting:
    """Come to the store that the environment names. Raises `UsageError` where there is none to come to."""
    with told_in_words():
        store, rank, world = next(rendezvous("env://", timeout=ARRIVAL))
        store.set_timeout(PATIENCE)
    return Meeting(store, rank, world)


def local_world() -> int:
    """How many processes a launcher has started on this machine; 1 where there was none."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


@contextmanager
def told_in_words() -> Iterator[None]:
    """Turn what torch raises where processes cannot meet into one `UsageError`."""
    try:
        yield
    except (DistError, ValueError) as error:
        port = os.environ.get("MASTER_PORT", "none")
        if "EADDRINUSE" in str(error):
            raise UsageError(f"the port {port} is in use on this host; set MASTER_PORT to a free one") from error
        place = f"{os.environ.get('MASTER_ADDR', 'no host')}:{port}"
        raise UsageError(f"the processes could not meet at {place}: {str(error).splitlines()[0]}") from error
