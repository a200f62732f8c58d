"""The peak of one step on a GPU that is not there, by a trace or by running it, and whether it fits the device."""

from collections.abc import Mapping

from assay.absent.gpus import AbsentDevice, absent_device, with_context
from assay.cost.simulation.reserved import Interval
from assay.estimator.memory_fit import MemoryFit, fit_within
from assay.records.own import TracedPeak

MOST_RESERVED = 1.33
"""Most that torch's allocator reserved, over what was requested, in 88 steps on an H200 (`h200_peaks.jsonl`). Left out
are captured graphs and offloaded activations, which cannot be traced."""


class GpuPeak(TracedPeak):
    """Highest instant of one optimizer step on a GPU, in which the optimizer's state exists."""

    device: str
    """Name of the device, as a user gives it."""
    torch: str
    """Version of the torch that was traced, or that ran."""
    ran: bool
    """True if torch's CUDA build ran the step on an absent GPU; False if it was traced on fake tensors."""
    requested_peak_bytes: int
    """Highest sum of tensors and workspaces."""
    allocated_peak_bytes: int | None = None
    """Requested bytes, each rounded up as torch's allocator does; None: a trace does not know it."""
    reserved_peak_bytes: int | None = None
    """Bytes that the allocator took from the device; None: a trace does not know them."""
    kernels: Mapping[str, int] = {}
    """Calls of fused kernels of attention and of RMSNorm, recomputed ones among them."""
    unknown: tuple[str, ...] = ()
    """Libraries that the step uses and whose workspaces are not known, so that they do not count."""
    exhausted: str | None = None
    """Sentence of torch if the memory of the device was exhausted; the figures are then those until that moment."""
    batch_size: int | None = None
    """Rows of a step; None if the step is a user's own and does not say."""
    largest_batch: int | None = None
    """Largest batch that fits the device, 0 if not even one row does; None if it was not asked for."""

    @property
    def described(self) -> AbsentDevice:
        """The device."""
        return absent_device(self.device)

    @property
    def visible_bytes(self) -> int:
        """Memory of the device."""
        return self.described.visible_bytes

    @property
    def in_use_bytes(self) -> tuple[int, int]:
        """Least and most memory in use on the device, with the context.

        Of a trace, the least is what was requested, and the most allows for what the allocator may reserve beyond.
        """
        if self.reserved_peak_bytes is not None:
            return with_context(self.reserved_peak_bytes)
        requested = self.requested_peak_bytes
        return with_context(requested)[0], with_context(round(requested * MOST_RESERVED))[1]

    @property
    def fit(self) -> MemoryFit:
        """Whether the step fits the device."""
        found = MemoryFit.NO if self.exhausted else fit_within(Interval(*self.in_use_bytes), self.visible_bytes)
        return MemoryFit.CONDITIONAL if self.unknown and found is MemoryFit.YES else found
