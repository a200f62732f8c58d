"""Memory of a step by category over its instants, and what a started process or a driver takes around it.

An instant is the highest of its part of the step: forward and backward by block, and the update. Its categories sum to
the bytes that are alive.
"""

from typing import Any

from assay.cost.simulation.composition import CATEGORIES
from assay.estimator import Estimate
from assay.report.blocks import Table
from assay.report.predicted.composition import parts_table
from assay.units import format_bytes, parse_bytes


def over_instants(found: Estimate) -> tuple[dict[str, Any], Table]:
    """Return the figure and the parts of the peak.

    The figure has labels of the instants, the bytes of each category at each of them, and the place of the peak.
    """
    return _figure(found), parts_table(found.peak_parts, found.timeline.peak)


def _figure(found: Estimate) -> dict[str, Any]:
    instants, peak = found.timeline.instants, found.timeline.peak
    unit = format_bytes(peak.nbytes).rpartition(" ")[2]
    names = list(CATEGORIES)
    return {
        "unit": unit,
        "unit_bytes": parse_bytes(f"1 {unit}"),
        "instants": [str(moment) for moment in instants],
        "phases": [moment.phase for moment in instants],
        "alive": [format_bytes(moment.nbytes) for moment in instants],
        "layers": [
            {
                "name": name,
                "series": 1 + names.index(name),
                "bytes": list(counts),
                "texts": list(map(format_bytes, counts)),
            }
            for name, counts in found.composed.layers().items()
        ],
        "peak": instants.index(peak),
        "peak_bytes": peak.nbytes,
    }
