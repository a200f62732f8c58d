"""Findings of the observer of one process, as it wrote them."""

from typing import Literal

from assay.config.base import Frozen
from assay.estimator.timing.dispatched import Call


class CodeLine(Frozen):
    """A line of the script, or of a library that it uses."""

    file: str = ""
    line: int = 0
    caller: str | None = None
    """Line of the user's own that led to it, as ``FILE:LINE``; None if it is that line."""

    @property
    def short(self) -> str:
        """Text such as ``train.py:12``, with the line of the user's own where the first is in a library."""
        if not self.file:
            return "a thread of autograd"
        parts = self.file.split("site-packages/")[-1].split("/")
        name = "/".join(parts) if "site-packages/" in self.file else parts[-1]
        own = f" (from {self.caller.rpartition('/')[2]})" if self.caller else ""
        return f"{name}:{self.line}{own}"


class DevicePeaks(Frozen):
    """Highest memory of one device, in bytes."""

    device: int
    requested_bytes: int
    """Sum of what tensors and workspaces asked for."""
    allocated_bytes: int
    """Sum of the same, each rounded up as torch's allocator does."""
    reserved_bytes: int
    """Memory that the allocator took from the device."""
    given_out_bytes: int
    """Memory that the device had given out, to the allocator and others."""
    total_bytes: int
    given_back: int = 0
    """Segments that the allocator gave back to the device, each of which a GPU waits for."""


class Read(CodeLine):
    """Reads of one line by one operator of torch."""

    operator: str
    kind: Literal["value", "whole", "size", "sent"]
    """A Python value, a whole one that may decide a size, a size of a tensor, or what had been sent."""
    count: int
    bytes: int
    stated: bool
    """True if the user has stated the value."""


class Unknown(CodeLine):
    """Use of a library whose answer is not known."""

    library: str
    function: str
    runs: bool
    """True if the script goes on, with a workspace that is not known."""


class Exhausted(CodeLine):
    """A request of memory that the device refused."""

    device: int
    wanted_bytes: int
    step: int


class ProcessEnd(Frozen):
    """End of the process."""

    how: Literal["running", "finished", "steps", "raised", "interrupted", "signal", "endless"]
    """`running` if it was killed before it could write."""
    error: str = ""
    message: str = ""
    place: CodeLine = CodeLine()
    signal: int | None = None


class Collective(Frozen):
    """One call of a collective, or of a send or receive."""

    name: str
    bytes: int
    """Payload, the larger side of the call: an all-gather's output, a reduce-scatter's input."""
    ranks: tuple[int, ...]
    """Ranks of the group."""


class ObservedCollectives(Frozen):
    """Collectives of one process, where it is one of several ranks."""

    calls: int = 0
    """Calls of the whole process."""
    of_a_step: tuple[Collective, ...] = ()
    """Calls of the last whole step, in order; without a step those of the process."""
    alike: bool = True
    """True if all steps after the second made the same calls."""


class ObservedOperators(Frozen):
    """Operators of one step, in order."""

    distinct: tuple[Call, ...]
    order: tuple[int, ...]
    """Places of the step's operators among the distinct ones."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every operator."""
        return tuple(self.distinct[place] for place in self.order)


class Observation(Frozen):
    """Findings of one process."""

    process: int
    torch: str
    devices: tuple[DevicePeaks, ...]
    counts: dict[str, int]
    """Counts of the whole process."""
    steps: int
    """Steps of the first optimizer that ended."""
    optimizers: int
    by_step: tuple[dict[str, int], ...]
    """Counts of each of the first 1000 steps."""
    reads: tuple[Read, ...]
    unknown: tuple[Unknown, ...]
    exhausted: tuple[Exhausted, ...]
    ended: ProcessEnd
    collectives: ObservedCollectives = ObservedCollectives()
    operators: ObservedOperators | None = None
    """None if times were not asked for, or if the third step had no operators to keep."""
    timed: bool = False
    """True if times were asked for."""
    refused: str | None
    """An allocator that does not count, if the script chose one."""

    @property
    def reserved_bytes(self) -> int:
        """Highest reserved memory of any device."""
        return max((one.reserved_bytes for one in self.devices), default=0)
