"""The parts of a predicted peak as a waterfall: each begins where those above it end. Stacks are columns."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from assay.cost.simulation.peak_parts import PARTS
from assay.report.blocks import Table
from assay.units import format_bytes

if TYPE_CHECKING:
    from assay.cost.simulation.allocator import Moment
    from assay.estimator import Estimate

_WIDTH = 32
"""Characters of the peak's bar."""
_PEAK, _INSTANT = "peak of tensors", "instant"


def composition_table(answer: "Estimate") -> Table:
    """Parts of the peak with bytes, shares and bars, and the peak with its instant."""
    return parts_table(answer.peak_parts, answer.timeline.peak)


def parts_table(parts: Mapping[str, int], peak: "Moment") -> Table:
    """Parts of a peak that are known already, as a table."""
    rows, below = [], 0
    for part, nbytes in parts.items():
        rows.append((part, format_bytes(nbytes), f"{nbytes / peak.nbytes:.1%}", _bar(below, nbytes, peak.nbytes)))
        below += nbytes
    rows.append((_PEAK, format_bytes(peak.nbytes), "100.0%", str(peak)))
    return Table.of(("parts of the peak", "bytes", "share", ""), rows, ("bytes", "share"))


def compositions_table(answers: Mapping[str, "Estimate"]) -> Table:
    """Parts of the peaks of several stacks, which are columns with their names as headings."""
    columns = list(answers.values())
    shown = [part for part in PARTS if any(part in one.peak_parts for one in columns)]
    rows = [(part, *(_cell(one, part) for one in columns)) for part in shown]
    rows.append((_PEAK, *(format_bytes(one.timeline.peak.nbytes) for one in columns)))
    rows.append((_INSTANT, *(str(one.timeline.peak) for one in columns)))
    return Table.of(("parts of the peak", *answers), rows, answers)


def _cell(answer: "Estimate", part: str) -> str:
    return format_bytes(answer.peak_parts[part]) if part in answer.peak_parts else "–"


def _bar(below: int, nbytes: int, peak: int) -> str:
    """A bar that begins after the bytes `below`; a part of any size has at least one character."""
    start = min(round(_WIDTH * below / peak), _WIDTH - 1)
    end = max(round(_WIDTH * (below + nbytes) / peak), start + 1)
    return " " * start + "█" * (end - start)
