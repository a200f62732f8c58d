"""Changes of predicted rows, their deviation from additivity, and ranks by predicted time.

Bytes and FLOPs are counted, so each of their changes counts. A predicted time has a margin. Of two rows the faster one
must take less time by at least the larger of both margins. A smaller change may have the other sign, and is not ranked.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from assay.analysis.choices.contexts import contexts_of
from assay.analysis.factors.additivity import MetricDeviations, deviations_of
from assay.analysis.factors.changes import SeedChanges
from assay.analysis.factors.grids import Grid, grids_of
from assay.analysis.factors.layout import FactorLayout, layout_of
from assay.analysis.predicted.figures import COMPARED, MEASURED, Figure
from assay.records.published import PublishedColumn, PublishedStudy
from assay.records.study import BASELINE
from assay.studies.predicted import PredictedStudy


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
