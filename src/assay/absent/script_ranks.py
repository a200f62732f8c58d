"""Ranks of a script over several absent GPUs. Each rank that is asked for is run by itself, one after the other.

A rank has the variables that torchrun sets. The other ranks are absent: their process groups answer at once
(`inside/process_groups.py`). So a script that torchrun would start runs unchanged, without torchrun.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import UsageError, short_text

MOST_RANKS = 4096
_LAUNCHERS = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"})
PER_HOST = 8
"""GPUs of one host, if the user states nothing else."""


@dataclass(frozen=True)
class ScriptRanks:
    """Ranks of a script, and those that are run."""

    count: int
    per_host: int
    """Devices of a host, which each process sees."""
    run: tuple[int, ...]

    def variables(self, rank: int) -> Mapping[str, str]:
        """Return the variables of one rank, as torchrun sets them, and one that tells the observer."""
        local, host = rank % self.per_host, rank // self.per_host
        hosts = -(-self.count // self.per_host)
        figures = {
            "RANK": rank,
            "WORLD_SIZE": self.count,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": min(self.per_host, self.count - host * self.per_host),
            "GROUP_RANK": host,
            "GROUP_WORLD_SIZE": hosts,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": self.count,
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        texts = {"MASTER_ADDR": "127.0.0.1", "ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "absent"}
        return {**{name: str(value) for name, value in figures.items()}, **texts, "ASSAY_ABSENT_RANKS": "1"}


def ranks_of(count: int, per_host: int | None, chosen: Sequence[int] | None) -> ScriptRanks:
    """Return the ranks of a script; without a choice the first and the last one are run.

    Raises `UsageError` if there are too few or too many, hosts are not whole, or a chosen rank does not exist.
    """
    if not 2 <= count <= MOST_RANKS:
        raise UsageError(f"--ranks is {count}; give 2 to {MOST_RANKS}")
    per_host = min(PER_HOST, count) if per_host is None else per_host
    if count > per_host and count % per_host:
        raise UsageError(f"{count} ranks do not fill hosts of {per_host} devices; give --devices, a divisor of {count}")
    run = tuple(sorted({0, count - 1} if chosen is None else set(chosen)))
    for rank in run:
        if not 0 <= rank < count:
            raise UsageError(f"--rank {rank} does not exist; {count} ranks are 0 to {count - 1}")
    return ScriptRanks(count, per_host, run)


def check_launcher(command: Sequence[str]) -> None:
    """Raise `UsageError` if a command starts ranks itself, which `--ranks` does in its place."""
    started = {Path(command[0]).name, *command[1:3]} & _LAUNCHERS
    if started:
        raise UsageError(
            f"--ranks takes the place of {min(started)}; name the script itself, as in: -- python train.py"
        )


def chosen_ranks(text: str, count: int) -> tuple[int, ...]:
    """Parse ``0,3`` or ``all``. Raises `UsageError` for another form."""
    if text == "all":
        return tuple(range(count))
    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError:
        raise UsageError(f"--rank is {short_text(text)}; give numbers such as 0,3, or all") from None
