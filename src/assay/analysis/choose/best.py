"""The best row of an earlier study, from which a later one starts.

Rates are tuned in one study, and measured in the next. That one uses other seeds, because the best of many rows is
best by luck as well.
"""

from statistics import fmean
from typing import NamedTuple

from assay.analysis.choose.criteria import contexts
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import metrics
from assay.analysis.row import Row
from assay.config.run import Run
from assay.errors import UsageError, among, short_text
from assay.records.status import Status
from assay.records.study import ComparisonRecord, is_placebo


class Best(NamedTuple):
    """The best row of a study."""

    row: str
    run: Run
    """Its configuration, with a seed that the study did not use, and held-out text that it did not read, if any."""
    sentence: str
    """Sentence on the row and its seeds, for the plan and the page of the study that starts from it."""
    by_validation: bool
    """True if it was chosen by losses of the validation split alone."""

    def told(self, base: Run) -> str:
        """Return the sentences on the start of a study whose base, with its overrides, is `base`."""
        if not self.by_validation:
            return self.sentence
        if base.data.evaluate_on == "test":
            return f"{self.sentence} It was chosen by validation losses; losses here are those of the test split."
        return f"{self.sentence} It was chosen by validation losses, and losses here have no text of their own."


def best_row(comparison: Comparison, metric: str) -> Best:
    """Return the row with the best mean of a metric over seeds, among those that finished at all of them.

    Placebos do not count, because they are the control, and neither do rows of another context. Raises `UsageError` for
    an unknown metric, and if no row has finished with it.
    """
    record, known, like = comparison.record, metrics(), contexts(comparison)[0].rows
    if metric not in known:
        hint = among(metric, known)
        raise UsageError(f"start_from names the metric {short_text(metric)}, which does not exist{hint}")
    figures = {
        row.treatment: figure
        for row in (comparison.baseline, *comparison.rows)
        if row.treatment in like
        and row.status is Status.DONE
        and not _is_placebo(record, row)
        and (figure := _figure(row, metric)) is not None
    }
    if not figures:
        raise UsageError(f"the study {record.id} has no finished row with {metric}, from which to start")
    choose = min if known[metric].better == "lower" else max
    name = choose(figures, key=lambda one: figures[one])
    run = next(one.cell.run for one in record.cells if one.cell.treatment == name).asked()
    free = max(one.cell.seed for one in record.cells) + 1
    sentence = (
        f"The base is the row {name} of the study {record.id}, with the best {known[metric].title} "
        f"({figures[name]:.4g}) of {len(figures)} rows. Seeds begin at {free}, after those of that study."
    )
    # Cells that ran beside each other had one thread each, which is no setting of the row.
    fresh = run.model_copy(update={"seed": free, "threads": record.base.threads})
    if run.data.evaluate_on != "validation":
        return Best(name, fresh, sentence, by_validation=False)
    data = run.data.model_copy(update={"evaluate_on": "test"})
    return Best(name, fresh.model_copy(update={"data": data}), sentence, by_validation=True)


def _figure(row: Row, metric: str) -> float | None:
    value = row.metrics.get(metric)
    if isinstance(value, tuple):
        return fmean(value) if value else None
    return value


def _is_placebo(record: ComparisonRecord, row: Row) -> bool:
    levels = next((one.cell.levels for one in record.cells if one.cell.treatment == row.treatment), {})
    return any(map(is_placebo, levels.values()))
