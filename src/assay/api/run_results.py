"""Runs and studies as the API returns them: records, lists, answers and predictions, for programs and notebooks."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PrivateAttr

from assay.analysis.comparison import Comparison
from assay.config.home import Home
from assay.records.run import RunResult
from assay.report.notebook import Shown
from assay.store.index import Entry
from assay.studies.predicted import PredictedStudy

if TYPE_CHECKING:
    from collections.abc import Iterable

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


Drawn = Literal["changes", "memory", "seconds", "step_times", "losses", "distances", "predictions"]
"""Names of the figures of a page."""


class StudyResult(Shown, Comparison):
    """Comparison of a study's cells."""

    @classmethod
    def of(cls, comparison: Comparison) -> "StudyResult":
        """Return a comparison as a result of the API."""
        return cls.model_construct(comparison.model_fields_set, **dict(comparison))

    def __repr__(self) -> str:
        return f"<study {self.record.id}: baseline and {len(self.rows)} rows, {len(self.record.cells)} cells>"

    def plot(self, figure: Drawn = "changes") -> "Figure | None":
        """Return a figure of the comparison's page: changes by treatment, memory over a step, losses by second or step.

        `step_times` is their distribution, `distances` has those of losses from the baseline's, and `predictions` the
        errors of predicted peaks. Returns None if there is nothing to draw.
        """
        from assay.report.study.view import StudyView

        return StudyView(self).figure(figure)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.study.view import StudyView

        return StudyView(self).blocks()


class PredictedAnswer(Shown, PredictedStudy):
    """A predicted study."""

    @classmethod
    def of(cls, found: PredictedStudy) -> "PredictedAnswer":
        """Return a predicted study as a result of the API."""
        return cls(**{name: getattr(found, name) for name in PredictedStudy.__dataclass_fields__})

    def __repr__(self) -> str:
        rows = len(self.named) - 1
        return f"<study predicted on {self.device}: baseline and {rows} row{'s' if rows > 1 else ''}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer as plain values."""
        from assay.report.study.predicted import predicted_study_values

        return predicted_study_values(self)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a line for each row: its levels, and every figure that is compared."""
        import pandas

        from assay.analysis.predicted_rows import COMPARED

        known = [(row.label, dict(row.levels), row.found) for row in self.named if row.found is not None]
        return pandas.DataFrame(
            {"row": label, **levels, **{one.name: one.of(found) for one in COMPARED}} for label, levels, found in known
        )

    def plot(self) -> "Figure | None":
        """Return heat maps of percent changes and of deviations by two factors; None for a comparison."""
        from assay.report.kit.drawing import together, with_print_colours
        from assay.report.study.predicted import maps

        drawn = together(maps(self))
        return None if drawn is None else with_print_colours(drawn)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.study.predicted import predicted_study_report

        return predicted_study_report(self)
