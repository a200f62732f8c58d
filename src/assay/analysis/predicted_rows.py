"""Figures of predicted rows on a GPU, their changes, deviations from additivity, and ranks by predicted time.

Where only bounds are known, the figure that is compared is the upper one. MFU is the model's own FLOPs for each second
over the peak of the dtypes in which the step multiplies (`hardware.devices`).

Bytes and FLOPs are counted, so each of their changes counts. A predicted time has a margin. Of two rows the faster one
must take less time by at least the larger of both margins. A smaller change may have the other sign, and is not ranked.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from assay.analysis.choose.criteria import contexts_of
from assay.analysis.factors.additivity import Grid, MetricDeviations, deviations_of, grids_of
from assay.analysis.factors.changes import SeedChanges
from assay.analysis.factors.layout import FactorLayout, layout_of
from assay.cost.simulation.reserved import Interval
from assay.estimator import Estimate
from assay.estimator.device_memory import DeviceMemory, device_memory
from assay.estimator.memory_fit import fit_within
from assay.hardware.devices import peak_flops
from assay.records.published import PublishedColumn, PublishedStudy
from assay.records.study import BASELINE
from assay.studies.predicted import PredictedStudy


class Figure(NamedTuple):
    """One figure of a step that rows are compared by."""

    name: str
    """Key in JSON, with its base unit."""
    title: str
    of: Callable[[Estimate], float | None]
    """Figure of a step; None if it is not predicted."""


def _requested(found: Estimate) -> float | None:
    """Return the most bytes that are requested at once; None of a captured graph, which requests its own pool once."""
    return None if found.cost.replayed else found.requested_bytes.high


REQUESTED = Figure("requested_peak_bytes", "requested", _requested)
SAVED = Figure("saved_bytes", "saved", lambda found: found.timeline.saved_bytes)
FLOPS = Figure("step_flops", "work", lambda found: found.step_flops)
SECONDS = Figure("step_seconds", "step time", lambda found: found.step_seconds)

COMPARED = (REQUESTED, SAVED, FLOPS, SECONDS)
"""Figures in the order in which they are shown."""
MEASURED = {"tensors_peak_bytes": REQUESTED, "step_seconds": SECONDS}
"""Figures by the metric that a run on a GPU measures of them; tensors and workspaces are one request to torch."""


class Held(NamedTuple):
    """Memory of one GPU in a step, and whether it fits."""

    reserved: Interval | None
    """Bytes that torch's allocator holds; None if a captured graph has a pool of its own."""
    in_use: Interval | None
    """Bytes that the allocator and the context of CUDA hold."""
    fit: str | None
    """Words on whether it fits; None if the bytes in use are not known."""


def held_memory(found: Estimate) -> Held:
    """Return the memory of a step on the first GPU of its machine."""
    memory: DeviceMemory | None = device_memory(found)
    if memory is None or memory.total is None:
        return Held(None, None, None)
    there = found.machine.accelerators[0].memory_bytes
    return Held(memory.reserved, memory.total, fit_within(memory.total, there).verdict)


def utilization(found: Estimate) -> float | None:
    """Return the MFU of a step; None if its time or the peak of its device is not known."""
    peak = peak_flops(found.machine, found.machine.device(found.run.device), found.flops)
    seconds = found.step_seconds
    return None if peak is None or not seconds else found.model_flops / (seconds * peak)


class Rank(NamedTuple):
    """Place of a row by its time, from 1: a range, as far as margins leave it open."""

    first: int
    last: int


def design_of(study: PredictedStudy) -> FactorLayout:
    """Return the factors of the rows that are predicted."""
    return layout_of({row.label: row.levels for row in study.rows if row.found is not None})


def changes_of(study: PredictedStudy, figure: Figure) -> SeedChanges | None:
    """Return the changes of all rows in one figure; None if the control has none, or no other row has."""
    return _changes({label: figure.of(found) for label, found in study.known.items()})


def change(study: PredictedStudy, figure: Figure, label: str) -> float | None:
    """Return the change of a row against the control, as a fraction; None if it is not predicted."""
    control, own = (figure.of(study.known[one]) if one in study.known else None for one in (BASELINE, label))
    return None if not control or own is None else own / control - 1


def deviations(study: PredictedStudy) -> tuple[MetricDeviations, ...]:
    """Return the deviation from the sum of its single changes of each row that has several, by figure."""
    design = design_of(study)
    found = (deviations_of(design, one.name, changes_of(study, one)) for one in COMPARED)
    return tuple(one for one in found if one is not None)


def grids(study: PredictedStudy) -> tuple[Grid, ...]:
    """Return percent changes and deviations by two factors, for each figure."""
    design = design_of(study)
    return tuple(grid for one in COMPARED for grid in grids_of(design, one.name, changes_of(study, one)))


def published_grids(study: PredictedStudy) -> tuple[tuple[PublishedColumn, Grid], ...]:
    """Return the grids of the document that a study repeats, computed from its table in the same way.

    Columns that nothing here predicts, such as losses, are left out.
    """
    published = study.published
    if published is None or published.control is None:
        return ()
    return tuple(
        (column, grid)
        for place, column in enumerate(published.columns)
        if column.metric in MEASURED
        for grid in grids_of(design_of(study), column.name, _changes(_figures(published, place, study)))
    )


def _figures(published: PublishedStudy, place: int, study: PredictedStudy) -> dict[str, float | None]:
    """Return the figures of one column by our rows, the control first."""
    found = {row.row: row.figures[place] for row in published.rows if row.row is not None}
    return {label: found.get(label) for label in study.known}


def _changes(figures: Mapping[str, float | None]) -> SeedChanges | None:
    (_, control), *others = figures.items()
    known = {name: one for name, one in others if one}
    if not control or not known:
        return None
    return SeedChanges(tuple(known), np.array([control]), np.array([[*known.values()]]), sampled=False)


def told_apart(study: PredictedStudy, one: str, other: str) -> bool:
    """Return whether the faster of two rows takes less time than the slower one by at least their margin."""
    times = [study.known[label].step_time for label in (one, other) if label in study.known]
    known = [time for time in times if time is not None]
    if len(known) < 2:
        return False
    margin = max(time.margin or 0.0 for time in known)
    fast, slow = sorted(time.seconds for time in known)
    return fast < slow and 1 - fast / slow >= margin


def ranks(study: PredictedStudy) -> dict[str, Rank]:
    """Return the place of each named row by its predicted time, among those of its context that have one."""
    named = {row.label: row.found.step_seconds for row in study.named if row.found is not None}
    known = {label: seconds for label, seconds in named.items() if seconds}
    found = {}
    for context in contexts_of(design_of(study), study.context):
        alike = {label: seconds for label, seconds in known.items() if label in context.rows}
        for label, seconds in alike.items():
            apart = [alike[one] for one in alike if told_apart(study, one, label)]
            faster = sum(one < seconds for one in apart)
            found[label] = Rank(1 + faster, len(alike) - (len(apart) - faster))
    return found
