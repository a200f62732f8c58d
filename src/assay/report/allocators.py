"""The answer of `assay absent --compare-allocators` as plain rows: the least reserved memory, and every setting."""

from collections.abc import Iterator
from typing import Any

from assay.absent.allocator_runs import AllocatorRun, AllocatorRuns
from assay.estimator.memory_fit import MemoryFit
from assay.report.absent import CANNOT_TELL, format_range, headline, limits
from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.units import format_bytes


class AllocatorsView(Shown[AllocatorRuns]):
    """The script under several settings of torch's allocator, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the parts of the answer."""
        found = self.found
        yield _least_reserved(found)
        for one in found.runs:
            yield from (f"{_settings(one)}: {text}" for text in limits(one.answer) if isinstance(text, str))
        columns = ("settings of the allocator", "", "requested", "reserved", "unused", "in use", "given back")
        yield Table.of(columns, map(_allocator_row, found.runs), right=columns[2:])
        yield (
            "Unused is what the highest reserved memory exceeds the highest request by. Given back are segments that "
            "the allocator returned to the device, for each of which a GPU waits."
        )
        yield CANNOT_TELL

    def values(self) -> dict[str, Any]:
        """Return the figures of every run for programs."""
        return self.found.to_dict()


def _least_reserved(found: AllocatorRuns) -> str:
    """The sentence that a colleague would say first."""
    least, default = found.least, found.default
    if least is None:
        return f"With {_settings(default)}: {headline(default.answer)}"
    reserved = format_bytes(least.reserved_bytes or 0)
    if least is default:
        return f"None of {len(found.runs)} settings reserves less than torch's defaults: {reserved}."
    if default.answer.fit not in (MemoryFit.YES, MemoryFit.CONDITIONAL):
        beside = f"with torch's defaults the script {default.answer.fit.words}"
    else:
        beside = f"torch's defaults reserve {format_bytes(default.reserved_bytes or 0)}"
    return f"Least is reserved with {_settings(least)}: {reserved} on one {least.answer.device.name}; {beside}."


def _settings(one: AllocatorRun) -> str:
    return one.settings or "torch's defaults"


def _allocator_row(one: AllocatorRun) -> tuple[str, ...]:
    peak, in_use = one.answer.peak, one.answer.in_use_bytes
    if peak is None or in_use is None or one.unused is None:
        return (_settings(one), one.answer.fit.words, "", "", "", "", "")
    sizes = (format_bytes(peak.requested_bytes), format_bytes(peak.reserved_bytes))
    return (
        _settings(one),
        one.answer.fit.words,
        *sizes,
        f"{one.unused:.0%}",
        format_range(in_use),
        str(peak.given_back),
    )
