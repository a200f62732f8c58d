"""Text on the accuracy of predictions: tables of errors by device and by technique, and sentences on missing runs."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from assay.report.blocks import Block, Table

if TYPE_CHECKING:
    from assay.analysis.accuracy import Accuracy, Errors

_TITLES = {
    "memory": "peak of tensors",
    "traced": "peak of tensors, traced",
    "time": "step time, from timed steps",
    "roofline": "step time, by a roofline",
}
_COLUMNS = ("runs", "median error", "95th percentile", "worst", "worst run")
NOTHING = (
    "No run here has both a prediction and a measurement. `assay train demo` makes such a run; step time is predicted "
    "after `assay machine`."
)


def accuracy_report(found: "Accuracy") -> Iterator[Block]:
    """Yield tables of all runs, devices and techniques, or a sentence if nothing can be compared."""
    if found.predictions:
        yield _table("predicted", found.overall())
        yield _table("by device", found.by_device())
        yield _table("by technique", found.by_technique())
        yield explanation()
    else:
        yield NOTHING
    yield from missing(found)


def explanation() -> str:
    """Sentences on how an error is counted."""
    return (
        "An error is the prediction over the measurement, minus one; medians and percentiles are of its size. A run "
        "counts for each technique of its stack."
    )


def missing(found: "Accuracy") -> Iterator[str]:
    """Yield sentences on runs that are not counted."""
    if found.predictions and found.others:
        yield f"{_runs(found.others)} without a predicted and measured figure, or without its proof, not counted."
    if found.unreadable:
        yield f"{_runs(found.unreadable)} cannot be read; `assay runs ls` says why."


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def _table(title: str, rows: "Sequence[Errors]") -> Table:
    return Table.of((title, "figure", *_COLUMNS), map(_row, rows), _COLUMNS[:4], spare=("worst run",))


def _row(one: "Errors") -> tuple[str, ...]:
    return (
        one.group,
        _TITLES[one.quantity],
        str(one.runs),
        _share(one.median),
        _share(one.percentile_95),
        _share(one.worst, signed=True),
        one.worst_run,
    )


def _share(error: float, *, signed: bool = False) -> str:
    """A fraction in percent; exact predictions are 0 %, and small errors keep their size."""
    digits = 1 if abs(error) >= 0.001 or error == 0 else 4
    return f"{100 * error:{'+' if signed and error else ''}.{digits}f} %".replace("-", "−")
