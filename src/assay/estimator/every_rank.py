"""One step predicted for every rank of a run: the fullest rank, each rank's payload, and the joint step time.

The joint time has the slowest rank's roofline, its communication, and its wait in a pipeline. Each rank computes its
ledger at the rates measured with its threads. Collectives take α–β on this machine's own link, without overlap. Sends
of a pipeline are simulated with its schedule, on stages as long as their roofline. Other communication and the update
follow them. The result is a sum of best cases. Ranks on one host share its memory's bandwidth and, if cores are few,
the cores with gloo's threads. Neither is modelled, nor is overlap, which would shorten a step. Every measured step is
printed with the error of this prediction.

A rank of a pipeline idles. The formula (p−1)/(vm + p−1) assumes equal stages. `bubble_share` simulates such stages, so
that it also covers schedules that split backward in two, with parts that take equally long. The stages of a model are
not equal: the last also computes the logits, and blocks may be distributed unevenly. `idle_shares` takes the FLOPs of
each stage as its time. Operations without FLOPs are left out, and sends are free. A product with a weight spends half
of its backward on the weight's gradient.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.config import ResolvedRun, Run
from assay.cost import Cost, multiplying, recomputed_positions
from assay.cost.collectives import Communication
from assay.cost.pipeline_bubble import Played, StageTime, play, play_chunks
from assay.cost.pipeline_schedules import Schedule
from assay.cost.work import communications, model_flops
from assay.estimator.alpha_beta import seconds
from assay.estimator.device_memory import device_memory_values
from assay.estimator.estimate import Estimate, bare_ledger, estimate
from assay.estimator.memory_fit import fit_of
from assay.estimator.timing.step_time import StepTime, stage_time, step_seconds, update_seconds
from assay.hardware import Machine, Rates
from assay.hardware.devices import peak_flops
from assay.hardware.links import Link, Network


@dataclass(frozen=True)
class EveryRank:
    """Predicted cost of one optimizer step on each rank of a run; a single rank if nothing divides it."""

    ranks: tuple[Estimate, ...]

    @property
    def run(self) -> ResolvedRun:
        """The run that all ranks share."""
        return self.ranks[0].run

    @cached_property
    def fullest(self) -> Estimate:
        """Estimate of the rank with the highest peak of tensors; the first of equals."""
        if len(self.ranks) == 1:
            return self.ranks[0]
        return max(self.ranks, key=lambda one: one.timeline.peak.nbytes)

    @cached_property
    def communications(self) -> tuple[tuple[Communication, ...], ...]:
        """Communications of a step, by rank."""
        return tuple(communications(one.cost) for one in self.ranks)

    @cached_property
    def handed_bytes(self) -> tuple[int, ...]:
        """Payload of a step by rank: bytes of the whole tensors that it gathers, reduces or sends."""
        return tuple(round(sum(one.count * one.payload_bytes for one in each)) for each in self.communications)

    @property
    def step_flops(self) -> int:
        """FLOPs executed by all ranks."""
        return sum(one.step_flops for one in self.ranks)

    @cached_property
    def step_time(self) -> StepTime | None:
        """Time of the step over all ranks; None if a rate of this machine, or the link, was not measured."""
        if len(self.ranks) == 1:
            return self.fullest.step_time
        machine, device = self.fullest.machine, self.run.device
        rates = machine.rates.get(machine.device(device))
        seconds = step_seconds_over_ranks([one.cost for one in self.ranks], rates) if rates else None
        return None if seconds is None else StepTime(seconds)

    @property
    def step_seconds(self) -> float | None:
        """Seconds of the step over all ranks; None if it is not predicted."""
        return None if self.step_time is None else self.step_time.seconds

    @property
    def bubble_share(self) -> float | None:
        """Share of a step that each of equal stages idles; None without a pipeline."""
        schedule = self.fullest.cost.pipeline.schedule
        return bubble_share(schedule) if schedule else None

    @cached_property
    def idle_shares(self) -> Mapping[int, float]:
        """Share of a step that each rank idles, with the unequal stages of its pipeline; empty without a pipeline."""
        return idle_shares([one.cost for one in self.ranks])

    def predicted(self) -> dict[str, Any]:
        """Values of a run's `predicted` record: those of the fullest rank, with the work and the time of all ranks."""
        if len(self.ranks) == 1:
            return self.fullest.predicted()
        time = {"step_seconds": self.step_seconds, "roofline_seconds": self.step_seconds, "roofline_factor": None}
        found = {**self.fullest.predicted(), "step_flops": self.step_flops, **time, **self._utilization()}
        return {**found, "bubble_share": self.bubble_share, "ranks": self._by_rank()}

    def _utilization(self) -> dict[str, Any]:
        """Both parts of MFU: FLOPs of the undivided model, as ranks may repeat some, and the peak of all devices."""
        one, count = self.fullest, len(self.ranks)
        peak = peak_flops(one.machine, one.machine.device(self.run.device), one.flops)
        whole = model_flops(bare_ledger(self.run, one.machine))
        return {"model_flops": whole, "peak_flops": None if peak is None else count * peak}

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values for JSON: those of the fullest rank, and by rank where they differ."""
        memory = device_memory_values(self.fullest)
        around: dict[str, Any] = {} if memory is None else {"device_memory": memory}
        fit = fit_of(self.fullest)
        around |= {} if fit is None else {"fit": fit.to_dict()}
        if len(self.ranks) == 1:
            return self.fullest.to_dict() | around
        sent = [
            {"collective": one.collective, "axis": one.axis, "payload_bytes": one.payload_bytes, "calls": one.count}
            for one in self.communications[self.fullest.cost.rank]
        ]
        return {
            **self.fullest.to_dict(),
            **around,
            **self.predicted(),
            "rank": self.fullest.cost.rank,
            "communications": sent,
        }

    def _by_rank(self) -> list[dict[str, Any]]:
        return [
            {
                "tensors_peak_bytes": one.timeline.peak.nbytes,
                "sent_bytes": handed,
                "saved_bytes": one.timeline.saved_bytes,
                "sent": self._by_axis(rank),
                "idle_share": self.idle_shares.get(rank),
            }
            for rank, (one, handed) in enumerate(zip(self.ranks, self.handed_bytes, strict=True))
        ]

    def _by_axis(self, rank: int) -> list[dict[str, Any]]:
        """Payload and calls of a rank by collective and axis."""
        calls: Counter[tuple[str, str]] = Counter()
        payloads: Counter[tuple[str, str]] = Counter()
        for one in self.communications[rank]:
            calls[one.collective, one.axis] += one.count
            payloads[one.collective, one.axis] += round(one.count * one.payload_bytes)
        return [
            {"collective": collective, "axis": axis, "count": count, "payload_bytes": payloads[collective, axis]}
            for (collective, axis), count in sorted(calls.items())
        ]


def estimate_every_rank(run: Run, machine: Machine) -> EveryRank:
    """Predict one step of `run` on each of its ranks. Raises the errors of `estimate`."""
    return EveryRank(tuple(estimate(run, machine, rank) for rank in range(run.ranks)))


def step_seconds_over_ranks(every: Sequence[Cost], rates: Rates) -> float | None:
    """Seconds of one optimizer step, given the ledgers of all ranks; None if a rate or the link was not measured."""
    if rates.link is None or any(not multiplying(cost) <= set(rates.matmul_flops) for cost in every):
        return None
    lines = every[0].mesh.groups("pp")
    return max(_line_seconds([every[rank] for rank in line], rates, rates.link) for line in lines)


def _line_seconds(line: Sequence[Cost], rates: Rates, link: Link) -> float:
    """Seconds of a step on the ranks of one pipeline, or on a single rank if there is no pipeline."""
    mesh, schedule = line[0].mesh, line[0].pipeline.schedule
    here = Network(inner=link, outer=link, ranks_per_node=mesh.size)
    if schedule is None:
        return max((step_seconds(cost, rates) or 0.0) + seconds(communications(cost), mesh, here) for cost in line)
    passed = [one for cost in line for one in communications(cost) if _passes_on(one)]
    send = max((link.seconds(one.payload_bytes) for one in passed), default=0.0)
    chunks = [[stage_time(cost, rates, sites) for sites in cost.pipeline.stages] for cost in line]
    played = play_chunks(schedule, chunks, send)
    others = [[one for one in communications(cost) if not _passes_on(one)] for cost in line]
    behind = max(
        update_seconds(cost, rates) + seconds(sent, mesh, here) for cost, sent in zip(line, others, strict=True)
    )
    return played.makespan_seconds + behind


def _passes_on(one: Communication) -> bool:
    return one.collective == "send" and one.axis == "pp"


_EQUAL = StageTime(1.0, 1.0, 1.0)


def bubble_share(schedule: Schedule) -> float:
    """Share of a step that each of equal stages idles; `bubble_fraction` where that has a formula."""
    return play(schedule, [_EQUAL] * schedule.stages).idle_share


def idle_shares(every: Sequence[Cost]) -> Mapping[int, float]:
    """Share of a step that each rank idles, given the ledgers of all ranks; empty without a pipeline."""
    shares: dict[int, float] = {}
    mesh = every[0].mesh
    for line in mesh.groups("pp") if every[0].pipeline.schedule else ():
        played = _played([every[rank] for rank in line])
        shares |= dict(zip(line, played.idle_shares, strict=True))
    return shares


def _played(line: Sequence[Cost]) -> Played:
    schedule = line[0].pipeline.schedule
    if schedule is None:
        raise ValueError("there is no pipeline to simulate")
    return play_chunks(schedule, [[_chunk(cost, sites) for sites in cost.pipeline.stages] for cost in line])


def _chunk(cost: Cost, sites: tuple[str, ...]) -> StageTime:
    """FLOPs of one micro-batch in the modules of a stage, in place of seconds."""
    again = recomputed_positions(cost)
    forward = backward = weight = 0.0
    for index, operation in enumerate(cost.tape):
        if operation.within(*sites):
            forward += operation.flops.forward
            backward += operation.flops.backward + (operation.flops.forward if index in again else 0)
            if not cost.parameters.keys().isdisjoint(operation.inputs):
                weight += operation.flops.backward / 2
    return StageTime(forward, backward - weight, weight)
