"""Sentences on a comparison as a whole: what it cannot conclude, and what disturbed it."""

from assay.analysis.losses.bounds import Yardstick
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.promises import unheld
from assay.analysis.row import Row, usable
from assay.analysis.timed import disturbances
from assay.records.study import ComparisonRecord, StudyEnding
from assay.units import format_percent


def caveats(record: ComparisonRecord, again: Row, yardstick: Yardstick) -> list[str]:
    """Return sentences on the comparison as a whole."""
    found = list(record.protocol.notes)
    if record.ending is StudyEnding.INTERRUPTED:
        found.append("The comparison was interrupted; processes that had finished by then are shown.")
    if record.ending is StudyEnding.BUDGET_REACHED:
        found.append(_cut_short(record))
    if not again.effects:
        found.append("The A/A pair is missing, so the difference between two identical runs is not known.")
    step = again.effects.get(STEP_SECONDS.name)
    if step and step.interval and not step.interval[0] <= 0 <= step.interval[1]:
        found.append(
            f"Two equal baselines differed in step time by {format_percent(step.change)}, more than their interval "
            "explains. That happens by chance in one comparison of twenty; compare again if it matters."
        )
    found += disturbances(record)
    if len(record.seeds) < 3:
        found.append("Fewer than three seeds: losses are printed as their values, without an interval.")
    return [*found, *unheld(record, yardstick)]


def _cut_short(record: ComparisonRecord) -> str:
    """Return a sentence on what a study that its limit of time ended cannot conclude."""
    counts = {name: len(usable(record.of(name))) for name in record.treatments}
    fewer = [name for name, count in counts.items() if 0 < count < record.planned]
    none = [name for name, count in counts.items() if not count]
    said = ["The limit of time ended the study."]
    if fewer:
        said.append(f"Fewer processes than planned: {', '.join(fewer)}.")
    if none:
        said.append(f"No process, so no conclusion: {', '.join(none)}.")
    return " ".join(said)
