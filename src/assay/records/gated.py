"""Figures of training steps in the lock of a gate: plain data, which is committed with a project.

A figure is the sum of its blocks. A block is what one line of the model makes, in all layers that are alike. Figures
decide, and blocks explain.
"""

from collections.abc import Mapping
from typing import Literal

from assay.records.base import Record

FORMAT = 1
"""Version of the lock's format."""
LOCK = "assay-gate.json"
"""Name of a lock."""
CPU = "cpu"
"""Device that is no GPU."""

Figure = Literal["peak_bytes", "saved_bytes", "flops", "synchronizations", "graph_breaks"]
"""Highest sum of tensors, most bytes that autograd holds, FLOPs of contractions, waits of the host, graph breaks."""

AbsentFigure = Literal["requested_peak_bytes", "reserved_peak_bytes"]
"""Highest sum of tensors and workspaces, and bytes that the allocator took from the device."""
GatedFigure = Figure | AbsentFigure


class FigureBlock(Record):
    """A part of a figure that has one origin."""

    part: str
    """Part of the peak, class of the module that saved it, or phase of the step."""
    path: str = ""
    """Path of the module or parameter; `*` stands for the number of a layer."""
    operator: str = ""
    line: str = ""
    """File and line that asked for it. Lines move, so they are no part of the identity."""
    count: int
    size: int
    """Bytes, FLOPs, or number of waits."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the block, by which it is compared."""
        return self.part, self.path, self.operator


class StepFigures(Record):
    """Figures of one optimizer step on fake tensors, in which the optimizer's state exists."""

    torch: str
    """Version of torch, without the name of its build."""
    figures: Mapping[Figure, int]
    """Graph breaks are left out where nothing is compiled."""
    instant: str
    """Phase and operator of the peak."""
    parts: Mapping[str, int]
    """Bytes of each part of the peak."""
    blocks: Mapping[Figure, tuple[FigureBlock, ...]]


class AbsentFigures(Record):
    """Peaks of a step that torch's CUDA build ran on an absent GPU: it has an allocator, which a trace has not."""

    torch: str
    """Version of that torch with the name of its build, on which workspaces of libraries depend."""
    device: str
    """Name of the GPU, as its driver reports it."""
    figures: Mapping[AbsentFigure, int]


class LockedStep(Record):
    """A step by the name of its function, for one device, with its figures."""

    step: str
    """The function, as in `train.py:build`; a file is relative to the folder of the lock."""
    device: str
    """`cpu`, or the name of a GPU that may be absent."""
    found: StepFigures
    absent: AbsentFigures | None = None
    """Figures of an absent GPU; None on a CPU, and where no environment had one."""

    @property
    def title(self) -> str:
        """Name for a reader."""
        return f"{self.step} on {self.device}"


class GateLock(Record):
    """All steps of a lock."""

    format: int = FORMAT
    steps: tuple[LockedStep, ...] = ()

    def of(self, step: str, device: str) -> LockedStep | None:
        """Return what is locked of a step; None if nothing is."""
        return next((one for one in self.steps if (one.step, one.device) == (step, device)), None)

    def with_steps(self, steps: tuple[LockedStep, ...]) -> "GateLock":
        """Return the lock with some steps replaced or added, sorted by name and device."""
        every = {(one.step, one.device): one for one in (*self.steps, *steps)}
        return GateLock(steps=tuple(every[key] for key in sorted(every)))
