"""Sentences on a comparison as a whole: what it cannot conclude, and what disturbed it."""

from collections.abc import Mapping, Sequence

from assay.analysis.claims import claim_caveats
from assay.analysis.losses.bounds import Yardstick
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.promises import unheld
from assay.analysis.row import Row
from assay.analysis.timed_processes import disturbances
from assay.records.study import ComparisonRecord, StudyEnding
from assay.units import format_percent


def caveats(
    record: ComparisonRecord, again: Row, yardstick: Yardstick, ended: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return sentences on the comparison as a whole; `ended` has the rows whose times are not compared, and why."""
    found = [*record.protocol.notes, *claim_caveats(ended)]
    if record.ending is StudyEnding.INTERRUPTED:
        found.append("The comparison was interrupted; processes that had finished by then are shown.")
    if record.ending is StudyEnding.BUDGET_REACHED:
        found += _cut_short(record)
    if not again.effects:
        found.append("The A/A pair is missing, so the difference between two identical runs is not known.")
    step = again.effects.get(STEP_SECONDS.name)
    if step and step.interval and not step.interval[0] <= 0 <= step.interval[1]:
        found.append(
            f"Two equal baselines differed in step time by {format_percent(step.change)}, more than their interval "
            "explains. That happens by chance in one comparison of twenty; compare again if it matters."
        )
    found += [*disturbances(record), *_begun_in_two_ways(record)]
    if len(record.seeds) < 3:
        found.append("Fewer than three seeds: losses are printed as their values, without an interval.")
    return [*found, *unheld(record, yardstick)]


def _begun_in_two_ways(record: ComparisonRecord) -> list[str]:
    """Return a sentence if some cells were forked and others started, as after the death of the fork server."""
    started, forked = (sum(one.forked is how for one in record.cells) for how in (False, True))
    if not started or not forked:
        return []
    return [
        f"{started} of {started + forked} cells started a process of their own, because the server that forked the "
        "others had ended or could not fork: process memory is not comparable between the two."
    ]


def _cut_short(record: ComparisonRecord) -> list[str]:
    from assay.analysis.factors.unfinished import cut_short  # imports numpy

    return cut_short(record)
