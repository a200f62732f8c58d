"""The peak of a step on a GPU that is not there, as plain rows: the sentence first, then memory, parts and kernels."""

from collections.abc import Iterator
from typing import Any

from assay.estimator.memory_fit import MemoryFit
from assay.fake.peak import MOST_RESERVED, GpuPeak
from assay.report.absent import WITH_CONTEXT
from assay.report.kit.blocks import Block, Facts, Table
from assay.report.kit.view import Shown
from assay.units import format_bytes, format_count

UNTOLD = "not known by a trace"


class GpuPeakView(Shown[GpuPeak]):
    """The peak of a step on an absent GPU, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the parts of the answer."""
        found = self.found
        yield headline(found)
        for library in found.unknown:
            yield f"The step uses {library}, whose workspaces are not known: the peak is at least the one below."
        yield Facts.of(_memory(found))
        rows = [
            (part, format_bytes(count), f"{count / found.requested_peak_bytes:.1%}")
            for part, count in found.parts.items()
        ]
        if rows:
            yield Table.of((f"parts of the peak, at {found.instant}", "bytes", "share"), rows, ("bytes", "share"))
        if found.kernels:
            yield Facts.of((f"{name} kernel", f"{count} calls") for name, count in found.kernels.items())

    def values(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        found = self.found
        device = found.described
        return {
            **found.model_dump(mode="json"),
            "device_name": device.name,
            "memory_bytes": device.visible_bytes,
            "in_use_bytes": list(found.in_use_bytes),
            "fits": found.fit.value,
        }


def headline(found: GpuPeak) -> str:
    """Return the sentence that a colleague would say first."""
    device = found.described
    total, requested = format_bytes(device.visible_bytes), format_bytes(found.requested_peak_bytes)
    of = f"one {device.name} of {total}"
    if found.exhausted:
        return f"It does not fit {of}: {found.exhausted}."
    if found.fit is MemoryFit.CONDITIONAL:
        left = format_bytes(device.visible_bytes - found.in_use_bytes[1])
        return f"It fits {of}, if unknown workspaces take no more than {left}."
    if found.ran:
        low, high = map(format_bytes, found.in_use_bytes)
        used = f"{low} to {high} would be in use"
        words = {
            MemoryFit.YES: f"It fits {of}: {used}.",
            MemoryFit.BARELY: f"It may just fit {of}, or just not: {used}.",
            MemoryFit.NO: f"It does not fit {of}: {used}.",
        }
        return words[found.fit]
    peak = f"{requested} are requested at the peak"
    words = {
        MemoryFit.YES: f"It fits {of}: {peak}, and there is room for what the allocator adds.",
        MemoryFit.BARELY: f"It may fit {of}, or just not: {peak}; what the allocator adds to them decides, which a "
        "trace does not know.",
        MemoryFit.NO: f"It does not fit {of}: {peak}, besides a context.",
    }
    return words[found.fit]


def _memory(found: GpuPeak) -> Iterator[tuple[str, str]]:
    low, high = map(format_bytes, found.in_use_bytes)
    yield "predicted by", "running it on an absent GPU" if found.ran else "a trace on fake tensors"
    yield "torch", found.torch
    if found.parameters:
        yield "parameters", format_count(found.parameters)
    yield "tensors", format_bytes(found.peak_bytes)
    yield "requested", f"{format_bytes(found.requested_peak_bytes)}, by tensors and workspaces"
    yield "allocated", _told(found.allocated_peak_bytes)
    yield "reserved", _told(found.reserved_peak_bytes)
    yield "in use", f"{low} to {high}, {WITH_CONTEXT}" if found.ran else f"{low} or more, {WITH_CONTEXT}"
    if found.batch_size is not None:
        yield "batch", str(found.batch_size)
    if found.largest_batch is not None:
        certain = "" if found.ran else f", also if the allocator reserves {MOST_RESERVED} times what is requested"
        yield "largest batch", f"{found.largest_batch}{certain}"


def _told(count: int | None) -> str:
    return UNTOLD if count is None else format_bytes(count)
