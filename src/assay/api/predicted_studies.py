"""Comparisons and studies whose rows are predicted on one GPU that may be absent, without any training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.api.configuration import Source, configure, on_device, title_of, with_initial_weights
from assay.api.designs import check_statements, designed
from assay.config.home import Home, home_of
from assay.config.run import ResolvedRun
from assay.data.progress import Progress, silent
from assay.errors import UsageError
from assay.report.notebook import Shown
from assay.studies.predicted import PredictedStudy, predicted_study

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


class PredictedAnswer(Shown, PredictedStudy):
    """A predicted study as the API returns it."""

    def __repr__(self) -> str:
        return f"<study predicted on {self.device}: baseline and {len(self.named) - 1} rows>"

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer as plain values."""
        from assay.report.predicted.study import predicted_study_values

        return predicted_study_values(self)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a line for each row: its levels, and every figure that is compared."""
        import pandas

        from assay.analysis.predicted.figures import COMPARED

        known = [(row.label, dict(row.levels), row.found) for row in self.named if row.found is not None]
        return pandas.DataFrame(
            {"row": label, **levels, **{one.name: one.of(found) for one in COMPARED}} for label, levels, found in known
        )

    def plot(self) -> "Figure | None":
        """Return heat maps of percent changes and of deviations by two factors; None for a comparison."""
        from assay.report.page.panels import together
        from assay.report.page.predicted import maps
        from assay.report.page.theme import printed

        drawn = together(maps(self))
        return None if drawn is None else printed(drawn)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.predicted.study import predicted_study_report

        return predicted_study_report(self)


def predict_comparison(
    source: Source = None,
    *overrides: str,
    device: str,
    treatments: str | Sequence[str] = (),
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> PredictedAnswer:
    """Predict a baseline and treatments on one GPU that may be absent, with every pair of treatments.

    Treatments are those of `compare`; without any, well-known techniques of the device are compared. Raises
    `UsageError` as `estimate` and `compare`.
    """
    from assay.studies.kinds.comparison import ComparisonStudy, usual
    from assay.studies.kinds.comparison import treatments as read

    place, tell = home_of(home), on_progress or silent
    base, machine = on_device(with_initial_weights(configure(source, overrides), place), device)
    rows = (treatments,) if isinstance(treatments, str) else tuple(treatments) or usual(base, tell, machine)
    study = ComparisonStudy(base=title_of(source), treatments=tuple(read(base, rows)))
    return _answer(predicted_study(study, base, device, machine, _Vocabulary(place, tell)))


def predict(
    source: Path | str,
    *overrides: str,
    device: str,
    scale: str | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> PredictedAnswer:
    """Predict every row of a study on one GPU that may be absent. The study is given as for `run`.

    Raises `UsageError` for a fault of the file, and if the control cannot be predicted there.
    """
    place, tell = home_of(home), on_progress or silent
    study, run = designed(source, overrides, scale, place)
    base, machine = on_device(run, device)
    found = predicted_study(study.on(base), base, device, machine, _Vocabulary(place, tell))
    check_statements(study, {row.label for row in found.rows})
    return _answer(found)


def _answer(found: PredictedStudy) -> PredictedAnswer:
    return PredictedAnswer(**{name: getattr(found, name) for name in PredictedStudy.__dataclass_fields__})


class _Vocabulary:
    """Finds the size of the vocabulary of a run; its text is prepared only if nothing else tells the size."""

    def __init__(self, home: Home, tell: Progress) -> None:
        self._home, self._tell = home, tell

    def __call__(self, run: ResolvedRun) -> ResolvedRun:
        known = run.with_vocabulary()
        if known.model.vocab_size is not None:
            return known
        from assay.data import prepare
        from assay.launch.prepare import leaving_nothing

        try:
            with leaving_nothing(run, self._home):
                return run.with_vocabulary(prepare(run.data, self._home.ready(), self._tell).vocab_size)
        except UsageError as reason:
            raise UsageError(f"the text decides the vocabulary: {reason}; or give model.vocab_size") from reason
