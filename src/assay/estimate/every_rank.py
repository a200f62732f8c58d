"""One step as every rank of a run takes it: which of them holds most, what each hands over, and their time together."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.config import Run
from assay.cost.collectives import Communication
from assay.cost.work import communications
from assay.estimate.estimate import Estimate, estimate
from assay.estimate.line import bubble_share, idle_shares
from assay.estimate.together import step_seconds_over_ranks
from assay.hardware import Machine


@dataclass(frozen=True)
class EveryRank:
    """What one optimizer step of a run costs on each of its ranks; one, where nothing divides it."""

    ranks: tuple[Estimate, ...]

    @property
    def run(self) -> Run:
        """What all of them run."""
        return self.ranks[0].run

    @cached_property
    def fullest(self) -> Estimate:
        """Of the rank whose tensors reach the highest peak; the first of equals."""
        return max(self.ranks, key=lambda one: one.timeline.peak.nbytes)

    @cached_property
    def communications(self) -> tuple[tuple[Communication, ...], ...]:
        """By rank, everything that it hands to collectives."""
        return tuple(communications(one.cost) for one in self.ranks)

    @cached_property
    def handed_bytes(self) -> tuple[int, ...]:
        """By rank, bytes of the whole tensors that it gathers, reduces or sends in a step."""
        return tuple(round(sum(one.count * one.payload_bytes for one in each)) for each in self.communications)

    @property
    def step_flops(self) -> int:
        """FLOPs executed by all of them."""
        return sum(one.step_flops for one in self.ranks)

    @cached_property
    def step_seconds(self) -> float | None:
        """Of all of them together; None where a rate of this machine, or the link between ranks, was not measured."""
        if len(self.ranks) == 1:
            return self.fullest.step_seconds
        machine, device = self.fullest.machine, self.run.device
        rates = machine.rates.get(machine.device(device))
        return step_seconds_over_ranks([one.cost for one in self.ranks], rates) if rates else None

    @property
    def bubble_share(self) -> float | None:
        """What each of equal stages would idle; None without a pipeline."""
        schedule = self.fullest.cost.schedule
        return bubble_share(schedule) if schedule else None

    @cached_property
    def idle_shares(self) -> Mapping[int, float]:
        """By rank, what it idles of a pipeline of its unequal stages; empty without a pipeline."""
        return idle_shares([one.cost for one in self.ranks])

    def predicted(self) -> dict[str, Any]:
        """The keys of a run's `predicted`: of the fullest rank, with the work and the time of all."""
        found = {**self.fullest.predicted(), "step_flops": self.step_flops, "step_seconds": self.step_seconds}
        if len(self.ranks) == 1:
            return found
        return {**found, "bubble_share": self.bubble_share, "ranks": self._by_rank()}

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON: of the fullest rank, and by rank what differs."""
        if len(self.ranks) == 1:
            return self.fullest.to_dict()
        sent = [
            {"collective": one.collective, "axis": one.axis, "payload_bytes": one.payload_bytes, "calls": one.count}
            for one in self.communications[self.fullest.cost.rank]
        ]
        return {**self.fullest.to_dict(), **self.predicted(), "rank": self.fullest.cost.rank, "communications": sent}

    def _by_rank(self) -> list[dict[str, Any]]:
        return [
            {
                "tensors_peak_bytes": one.timeline.peak.nbytes,
                "sent_bytes": handed,
                "idle_share": self.idle_shares.get(rank),
            }
            for rank, (one, handed) in enumerate(zip(self.ranks, self.handed_bytes, strict=True))
        ]


def estimate_every_rank(run: Run, machine: Machine) -> EveryRank:
    """Predict one step of `run` on each of its ranks. Raises what `estimate` does."""
    return EveryRank(tuple(estimate(run, machine, rank) for rank in range(run.ranks)))
