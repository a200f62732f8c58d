"""Runs as the API returns them: a record with its steps, and the list of runs, for programs and notebooks."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PrivateAttr

from assay.config.home import Home
from assay.records.run import RunResult
from assay.report.notebook import Shown
from assay.store.entry import Entry

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


class TrainedRun(Shown, RunResult):
    """Result of a run, with its steps."""

    _root: Path = PrivateAttr()
    """Folder of the home in which the run lies."""

    @classmethod
    def of(cls, result: RunResult, home: Home) -> "TrainedRun":
        """Return a result whose run lies in `home`."""
        made = cls.model_construct(result.model_fields_set, **dict(result))
        made._root = home.root
        return made

    def __repr__(self) -> str:
        return f"<run {self.run}: {self.status.value} after {self.steps} steps>"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per optimizer step, indexed by `step`.

        Columns are the fields of the step events, such as `loss` (nats per token), `learning_rate`, `seconds` and
        `phase`, and `val_loss` where an evaluation followed the step. Raises `UsageError` if the run was removed.
        """
        import pandas

        from assay.store import history
        from assay.store.lookup import find

        events = find(Home(self._root), self.run).events()
        steps = [step.model_dump(exclude={"event"}) for step in history.steps(events)]
        evaluated = {one.step - 1: one.loss for one in history.evaluations(events)}
        frame = pandas.DataFrame(steps, columns=None if steps else ["step", "loss", "learning_rate"]).set_index("step")
        return frame.assign(val_loss=frame.index.map(evaluated).astype(float)) if evaluated else frame

    def plot(self) -> "Figure | None":
        """Return a figure of training loss, validation loss and learning rate by step; None without a step."""
        from assay.report.comparison.wording import unit_of_loss
        from assay.report.curves import losses

        return losses(self.to_frame(), unit_of_loss(self.config)) if self.steps else None

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.run import run_report

        return run_report(self, Home(self._root))


class RunTable(list[Entry]):
    """Entries of runs, newest first."""

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per run, indexed by its id, with every column of the store's index."""
        import pandas

        return pandas.DataFrame([entry._asdict() for entry in self], columns=Entry._fields).set_index("run")

    def _repr_html_(self) -> str:
        from assay.report.blocks import Table
        from assay.report.notebook import html
        from assay.report.runs import COLUMNS, FIGURES, row

        return html([Table.of(COLUMNS, map(row, self), FIGURES)])
