"""Memory of a step by category over its instants, and what a started process or a driver takes around it.

An instant is the highest of its part of the step: forward and backward by block, and the update. Its categories sum to
the bytes that are alive.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.cost.simulation.allocator import Moment
from assay.cost.simulation.composition import PARTS
from assay.estimator import Estimate
from assay.report.blocks import Table
from assay.report.predicted.composition import parts_table
from assay.units import format_bytes, parse_bytes

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "weights": ("weights",),
    "optimizer state": ("optimizer state",),
    "gradients": ("gradients",),
    "copies of weights": ("copies of weights", "gathered weights"),
    "saved for backward": tuple(part for part in PARTS if part.startswith("saved: ")),
    "activations": ("activations in use", "gradients of activations"),
    "temporaries": ("temporaries",),
    "batch, tables, messages": ("tables and buffers", "token ids and targets", "messages of collectives"),
}
"""Categories of the figure, from the lowest layer on, with the parts of `assay estimate` that each has."""


def over_instants(found: Estimate) -> tuple[dict[str, Any], Table]:
    """Return the figure and the parts of the peak.

    The figure has labels of the instants, the bytes of each category at each of them, and the place of the peak.
    """
    instants, peak = found.timeline.instants, found.timeline.peak
    parts = list(map(found.composed.parts, instants))
    table = parts_table(parts[instants.index(peak)], peak)
    return _figure(instants, peak, parts), table


def _figure(instants: Sequence[Moment], peak: Moment, parts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    layers = {
        name: [sum(one.get(part, 0) for part in members) for one in parts] for name, members in CATEGORIES.items()
    }
    unit = format_bytes(peak.nbytes).rpartition(" ")[2]
    return {
        "unit": unit,
        "unit_bytes": parse_bytes(f"1 {unit}"),
        "instants": [str(moment) for moment in instants],
        "phases": [moment.phase for moment in instants],
        "alive": [format_bytes(moment.nbytes) for moment in instants],
        "layers": [
            {"name": name, "series": number, "bytes": counts, "texts": list(map(format_bytes, counts))}
            for number, (name, counts) in enumerate(layers.items(), start=1)
            if any(counts)
        ],
        "peak": instants.index(peak),
        "peak_bytes": peak.nbytes,
    }
