"""Figures of a training step of a user's own, as plain data.

A figure that was not measured is None, and `missing` has the reason by the figure's name.
"""

from collections.abc import Mapping

from pydantic import Field

from assay.records.anatomy import Anatomy
from assay.records.base import Record
from assay.records.memory import Memory
from assay.records.timing import Block, Quartiles
from assay.records.trace import Operation
from assay.records.trace.parts import Memory as HeldMemory


class OwnProgram(Record):
    """Description of the step and of the machine that ran it."""

    title: str
    device: str
    torch: str
    """Version of torch."""
    threads: int
    """Threads of a CPU's kernels."""
    parameters: int
    """Number of elements of the distinct parameters of the modules."""
    modules: tuple[str, ...]
    """Classes of the modules that the step called."""
    optimizers: tuple[str, ...]
    """Classes of the optimizers that made a step."""
    tokens: int | None = None
    """Tokens of a step, if they were stated."""


class OwnStep(Record):
    """One training step: its peak of tensors, its operators, its times, and its parts."""

    program: OwnProgram
    steps: int
    """Number of steps that were made, each of which trained the model."""
    first_loss: float | None = None
    last_loss: float | None = None
    """Losses that the first and the last step returned; None if they returned no number."""
    first_step_seconds: float
    step_seconds: Quartiles
    """Seconds of the timed steps, which were not watched."""
    blocks: tuple[Block, ...]
    memory: Memory
    """Peaks. That of tensors includes all tensors that were alive before the step."""
    peak_parts: Mapping[str, int]
    """Bytes of each part of the peak. They sum to slightly less, because the ledger does not see inside operators."""
    held: HeldMemory
    """Bytes of parameters, gradients, optimizer state and saved tensors, by the trace."""
    forwards: int
    """Number of forwards of the last module that kept gradients."""
    operations: tuple[Operation, ...]
    synchronizations: Mapping[str, int]
    """Number of times by phase that the host waited for the device."""
    anatomy: Anatomy | None = None
    missing: Mapping[str, str] = Field(default_factory=dict)
    """Reason of each figure that is None."""

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of a second of the median step; None if they were not stated."""
        return None if self.program.tokens is None else self.program.tokens / self.step_seconds.median

    @property
    def flops(self) -> Mapping[str, int]:
        """FLOPs of contractions by dtype, in the whole step."""
        found: dict[str, int] = {}
        for one in self.operations:
            if one.flops:
                found[one.dtype] = found.get(one.dtype, 0) + one.flops
        return found
