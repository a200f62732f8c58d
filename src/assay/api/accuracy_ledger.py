"""Accuracy of the predictions in a home: what was predicted of its runs, against their measurements."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.analysis.accuracy import Accuracy
from assay.config.home import Home, home_of
from assay.report.notebook import Shown

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.records.run import RunResult
    from assay.report.blocks import Block


@dataclass(frozen=True, repr=False)
class AccuracyLedger(Shown, Accuracy):
    """Errors of all predictions in a home."""

    def __repr__(self) -> str:
        return f"<accuracy of the predictions of {self.runs} runs>"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per run and quantity.

        Columns are `run`, `device`, `techniques`, `quantity`, `predicted` and `measured` (bytes or seconds), and
        `error` (a fraction).
        """
        import pandas

        columns = ("run", "device", "techniques", "quantity", "predicted", "measured", "error")
        rows = [{name: getattr(one, name) for name in columns} for one in self.predictions]
        return pandas.DataFrame(rows, columns=list(columns))

    def plot(self) -> "Figure | None":
        """Return a figure of predicted against measured memory and time; None without a prediction."""
        from assay.report.accuracy import figure

        return figure(self)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.accuracy import accuracy_report

        return accuracy_report(self)


def accuracy(home: Home | Path | str | None = None) -> AccuracyLedger:
    """Return the errors of predicted memory and time of all runs of a home, by device and by technique.

    Records are read, and nothing is written. Raises `UsageError` if the home cannot be read.
    """
    from assay.analysis.accuracy import accuracy as collect

    results = list(_results(home_of(home).checked()))
    found = collect([one for one in results if one is not None], results.count(None))
    return AccuracyLedger(found.predictions, found.runs, found.others, found.unreadable)


def write_accuracy(found: AccuracyLedger, path: Path | str) -> Path:
    """Write the page of `found` and return its path. Raises `UsageError` and `StorageError` as other pages do."""
    from assay.report.accuracy import write_accuracy_page

    return write_accuracy_page(found, Path(path))


def _results(home: Home) -> "Iterator[RunResult | None]":
    """Yield the record of each run that has ended, oldest first; None for one that cannot be read."""
    from assay.errors import UsageError
    from assay.store.run_folder import RunFolder

    if not home.runs.is_dir():
        return
    for path in sorted(home.runs.iterdir()):
        if path.name.startswith(".") or not path.is_dir():
            continue
        try:
            result = RunFolder(path).result()
        except (UsageError, OSError):
            yield None
            continue
        if result is not None:
            yield result
