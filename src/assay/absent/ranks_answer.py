"""The answer to a run over several absent GPUs: one answer for each rank that was run, and what they have in common."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from assay.absent.answer import AbsentAnswer
from assay.absent.devices import AbsentDevice
from assay.absent.launch import StatedRead, run_absent
from assay.absent.nccl import nccl_bytes
from assay.absent.observation import Collective
from assay.absent.ranks import ScriptRanks
from assay.records.status import Exit, Status


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


def repeated(calls: Sequence[Collective]) -> Iterator[tuple[Collective, int]]:
    """Yield calls in order, each with how often it follows itself."""
    for one, same in groupby(calls):
        yield one, sum(1 for _ in same)
