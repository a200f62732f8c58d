"""The answer to a run over several absent GPUs: one answer for each rank that was run, and what they have in common.

NCCL's own buffers of a rank are a range. They are outside of torch's allocator, and depend on links and topology.

A rank has buffers for each channel and each peer that it is connected to. A connection has a buffer for each of three
protocols. `NCCL_BUFFSIZE` is that of the first, 4 MiB by default (docs.nvidia.com/deeplearning/nccl, environment
variables). That of LL has 524,288 bytes: 8 lines of 16 bytes for each of 512 threads and 8 steps. That of LL128 has
4,915,200 bytes: 120 words of 8 bytes for each of 640 threads and 8 steps. Both are from NCCL's code (`computeBuffSizes`
in `src/init.cc`, and `src/include/device.h`). NCCL allocates in units of 2 MiB: 10,485,760 bytes on the receiving side
and 2,097,152 on the sending side, the two sizes that NVIDIA/nccl#1685 lists.

- Low: two channels, as over PCIe (NVIDIA/nccl#1358), to one peer.
- High: 32 channels, as between H100 (NVIDIA/nccl#1685), or `NCCL_MAX_NCHANNELS`. Collectives have three connections in
  each: to the next rank of a ring, and to two of a tree. An all-to-all, or sends and receives, may reach every peer.

Published figures are below the high end. A group took 544 MB among two A100 and 688 MB among more (NVIDIA/nccl#964),
where it is 1.21 GB. Eight H100 had 4.34 GB after an all-to-all, with the context (NVIDIA/nccl#1685), where it is 4.03
GB and a context. Groups that share memory (`ncclCommSplit`), buffers of a network and NVLink SHARP are not modelled.

Each rank of a script that is asked for is run by itself, one after the other. It has the variables that torchrun sets.
The other ranks are absent: their process groups answer at once (`inside/process_groups.py`). So a script that torchrun
would start runs unchanged, without torchrun.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from assay.absent.gpus import AbsentDevice
from assay.absent.launch import StatedRead, run_absent
from assay.absent.observation import Collective
from assay.absent.script_answer import AbsentAnswer
from assay.errors import UsageError, short_text
from assay.records.status import Exit, Status

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


_MIB = 2**20
_UNIT = 2 * _MIB
_SIMPLE, _LL, _LL128 = 4 * _MIB, 8 * 512 * 8 * 16, 120 * 640 * 8 * 8
_CHANNELS = (2, 32)
_CONNECTIONS = 3
"""Most connections of a channel for collectives that are no all-to-all."""
_TO_PEERS = frozenset({"all_to_all", "send", "recv"})
"""Calls that may connect a rank to every other of its group."""


def nccl_bytes(calls: Iterable[Collective], variables: Mapping[str, str]) -> tuple[int, int]:
    """Return the least and most bytes of NCCL's buffers of a rank that makes these calls.

    `variables` are those of its environment, of which NCCL's change the sizes.
    """
    names: dict[tuple[int, ...], set[str]] = {}
    for call in calls:
        if len(call.ranks) > 1:
            names.setdefault(call.ranks, set()).add(call.name)
    simple = _stated(variables, "NCCL_BUFFSIZE", _SIMPLE)
    connection = -(-(simple + _LL + _LL128) // _UNIT) * _UNIT + _UNIT
    most = _stated(variables, "NCCL_MAX_NCHANNELS", _CHANNELS[1])
    peers = sum(
        (_CONNECTIONS if found - _TO_PEERS else 0) + (len(group) - 1 if found & _TO_PEERS else 0)
        for group, found in names.items()
    )
    return len(names) * min(_CHANNELS[0], most) * connection, peers * most * connection


def _stated(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, "")
    return int(text) if text.isdigit() and int(text) else default


class Payload(NamedTuple):
    """Calls of one kind among one group in a step."""

    name: str
    ranks: tuple[int, ...]
    calls: int
    bytes: int
    """Sum of the payloads."""


class RanksAnswer:
    """The answers of the ranks that were run, by rank."""

    def __init__(self, device: AbsentDevice, ranks: ScriptRanks, answers: Mapping[int, AbsentAnswer]) -> None:
        self.device, self.ranks, self.answers = device, ranks, dict(answers)

    @property
    def fullest(self) -> int:
        """Rank with the highest reserved memory, or the first one that does not fit or failed."""
        for rank, one in self.answers.items():
            if one.status is not Status.DONE:
                return rank
        return max(self.answers, key=lambda rank: peak.reserved_bytes if (peak := self.answers[rank].peak) else 0)

    @property
    def status(self) -> Status:
        """Status of the first rank that did not end well; done if all did."""
        return self.answers[self.fullest].status

    @property
    def exit_code(self) -> Exit:
        """Exit code of the command: that of the first rank that does not fit or failed."""
        return self.answers[self.fullest].exit_code

    @property
    def left_bytes(self) -> int | None:
        """Memory that the fullest rank leaves for NCCL's own buffers; None if its memory in use is not known."""
        in_use = self.answers[self.fullest].in_use_bytes
        return None if in_use is None else self.device.visible_bytes - in_use[1]

    def nccl_bytes(self, rank: int) -> tuple[int, int]:
        """Return the least and most bytes of NCCL's own buffers of a rank, by the groups of its step."""
        return nccl_bytes(self.calls(rank), os.environ)

    @property
    def missing(self) -> int:
        """Number of ranks that were not run."""
        return self.ranks.count - len(self.answers)

    def calls(self, rank: int) -> tuple[Collective, ...]:
        """Return the collectives of one step of a rank, in order."""
        seen = self.answers[rank].observation
        return seen.collectives.of_a_step if seen else ()

    def to_dict(self) -> dict[str, object]:
        """Return the answer as plain values. `nccl_bytes` are the least and most of NCCL's own buffers, by rank."""
        return {
            "device": self.device.name,
            "ranks": self.ranks.count,
            "devices_per_host": self.ranks.per_host,
            "status": self.status.value,
            "nccl_bytes": {str(rank): list(self.nccl_bytes(rank)) for rank in self.answers},
            "by_rank": {str(rank): one.to_dict() for rank, one in self.answers.items()},
        }


def run_ranks(
    command: Sequence[str],
    device: AbsentDevice,
    ranks: ScriptRanks,
    steps: int | None,
    reads: Sequence[StatedRead],
    tell: Callable[[str], None],
) -> RanksAnswer:
    """Run the chosen ranks one after the other. Raises `UsageError` as `run_absent` does."""
    answers = {}
    for rank in ranks.run:
        tell(f"rank {rank} of {ranks.count}")
        given = ranks.variables(rank)
        launched = run_absent(
            command, device, count=ranks.per_host, steps=steps, reads=reads, variables=given, tell=tell
        )
        answers[rank] = AbsentAnswer(device, ranks.per_host, command, launched)
    return RanksAnswer(device, ranks, answers)


def payloads(calls: Sequence[Collective]) -> tuple[Payload, ...]:
    """Return the sums of a step's collectives by kind and group, the largest first."""
    counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
    sums: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for one in calls:
        counts[one.name, one.ranks] += 1
        sums[one.name, one.ranks] += one.bytes
    return tuple(Payload(*key, counts[key], total) for key, total in sums.most_common())


def count_repeats(calls: Sequence[Collective]) -> Iterator[tuple[Collective, int]]:
    """Yield calls in order, each with how often it follows itself."""
    for one, same in groupby(calls):
        yield one, sum(1 for _ in same)
