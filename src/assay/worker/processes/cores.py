"""Pin a process to cores, before torch starts its threads, which then stay there, too.

A process that may move between cores finds its caches empty after each move. The measurement then depends on what else
the machine does. A pinned process does not move, and several of them do not disturb each other.
"""

import os
from collections.abc import Sequence

from assay.errors import UsageError


def pin(cores: Sequence[int] | None) -> None:
    """Pin this process, as one of the ranks of its machine, to its share of the cores; None leaves it free.

    Raises `UsageError` if the system refuses.
    """
    if cores is None:
        return
    rank, ranks = (int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)))
    try:
        os.sched_setaffinity(0, share(cores, rank, ranks))
    except (AttributeError, OSError) as error:
        raise UsageError(f"this system cannot pin a process to the cores {list(cores)} ({error})") from error


def share(cores: Sequence[int], rank: int, ranks: int) -> Sequence[int]:
    """Return the cores of one rank: equal parts, in order; fewer cores than ranks are shared by turns."""
    each = len(cores) // ranks
    return cores[rank * each : (rank + 1) * each] if each else (cores[rank % len(cores)],)
