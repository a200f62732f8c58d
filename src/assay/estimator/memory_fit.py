"""Whether a step fits a device: its need, the memory that is there, and the batch of which both are said."""

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

from assay.config.run import ResolvedRun
from assay.cost.simulation.reserved import Interval
from assay.estimator.device_memory import device_memory
from assay.estimator.estimate import Estimate
from assay.optimizations import optimizations_of


class MemoryFit(StrEnum):
    """Whether a step or a script fits the memory of a device."""

    YES = "yes"
    BARELY = "barely"
    """It does at the lower bound of its need, such as with one of the small contexts that were measured."""
    CONDITIONAL = "conditional"
    """It does if workspaces of libraries, which are not known, need no more than what is left."""
    NO = "no"
    UNKNOWN = "unknown"
    UNUSED = "unused"
    """The script used no GPU."""

    @property
    def words(self) -> str:
        """Words of a sentence, such as ``does not fit``."""
        return _WORDS[self]

    @property
    def verdict(self) -> str:
        """Words of a table's cell on a prediction: fits, may fit, or does not fit."""
        return "may fit" if self is MemoryFit.BARELY else self.words


_WORDS = {
    MemoryFit.YES: "fits",
    MemoryFit.BARELY: "may just fit, or just not",
    MemoryFit.CONDITIONAL: "fits if unknown workspaces do",
    MemoryFit.NO: "does not fit",
    MemoryFit.UNKNOWN: "cannot be told",
    MemoryFit.UNUSED: "uses no GPU",
}


def fit_within(need: Interval, memory_bytes: int) -> MemoryFit:
    """Return whether a need goes into some memory, also at the higher of its bounds."""
    if need.high <= memory_bytes:
        return MemoryFit.YES
    return MemoryFit.BARELY if need.low <= memory_bytes else MemoryFit.NO


@dataclass(frozen=True)
class StepBatch:
    """Sequences of a step, and the parts in which they are computed."""

    sequences: int
    context: int
    micro_batches: int

    def to_dict(self) -> dict[str, int]:
        """Return the figures as plain values."""
        return {"sequences": self.sequences, "context": self.context, "micro_batches": self.micro_batches}


def batch_of(run: ResolvedRun) -> StepBatch:
    """Return the batch of a run."""
    parts = prod(one.cuts() for one in optimizations_of(run))
    return StepBatch(run.sequences_per_step, run.model.context_length, parts)


@dataclass(frozen=True)
class Fit:
    """A step beside the memory of its device."""

    need: Interval
    """Bytes in use on the device, with CUDA's context."""
    memory_bytes: int
    batch: StepBatch

    @property
    def verdict(self) -> str:
        """Words on whether it fits."""
        return fit_within(self.need, self.memory_bytes).verdict

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {
            "verdict": self.verdict,
            "need_bytes": {"low": self.need.low, "high": self.need.high},
            "memory_bytes": self.memory_bytes,
            "batch": self.batch.to_dict(),
        }


def fit_of(found: Estimate) -> Fit | None:
    """Return how a step fits the first GPU of its machine; None without one, and if what is reserved is not known."""
    memory = device_memory(found)
    if memory is None or memory.total is None or not found.machine.accelerators:
        return None
    return Fit(memory.total, found.machine.accelerators[0].memory_bytes, batch_of(found.run))
