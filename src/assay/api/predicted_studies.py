"""Comparisons and studies whose rows are predicted on one GPU that may be absent, without any training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, configure, on_device, title_of, with_initial_shape
from assay.api.designs import check_statements, designed
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.predicted_results import PredictedAnswer
    from assay.config.run import ResolvedRun
    from assay.data.progress import Progress


def predict_comparison(
    source: Source = None,
    *overrides: str,
    device: str,
    treatments: str | Sequence[str] = (),
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "PredictedAnswer":
    """Predict a baseline and treatments on one GPU that may be absent, with every pair of treatments.

    Treatments are those of `compare`; without any, well-known techniques of the device are compared. Raises
    `UsageError` as `estimate` and `compare`.
    """
    from assay.api.predicted_results import PredictedAnswer
    from assay.data.progress import silent
    from assay.studies.kinds.comparison import ComparisonStudy, usual
    from assay.studies.kinds.comparison import treatments as read
    from assay.studies.predicted import predicted_study

    place, tell = home_of(home), on_progress or silent
    base, machine = on_device(with_initial_shape(configure(source, overrides), place), device)
    rows = (treatments,) if isinstance(treatments, str) else tuple(treatments) or usual(base, tell, machine)
    study = ComparisonStudy(base=title_of(source), treatments=tuple(read(base, rows)))
    found = predicted_study(study, base, device, machine, _Vocabulary(place, tell))
    return PredictedAnswer.of(found)


def predict(
    source: Path | str,
    *overrides: str,
    device: str,
    scale: str | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "PredictedAnswer":
    """Predict every row of a study on one GPU that may be absent. The study is given as for `run`.

    Raises `UsageError` for a fault of the file, and if the control cannot be predicted there.
    """
    from assay.api.predicted_results import PredictedAnswer
    from assay.data.progress import silent
    from assay.studies.predicted import predicted_study

    place, tell = home_of(home), on_progress or silent
    study, run = designed(source, overrides, scale, place, with_initial_shape)
    base, machine = on_device(run, device)
    found = predicted_study(study.on(base), base, device, machine, _Vocabulary(place, tell))
    check_statements(study, {row.label for row in found.rows})
    return PredictedAnswer.of(found)


class _Vocabulary:
    """Finds the size of the vocabulary of a run; its text is prepared only if nothing else tells the size."""

    def __init__(self, home: Home, tell: "Progress") -> None:
        self._home, self._tell = home, tell

    def __call__(self, run: "ResolvedRun") -> "ResolvedRun":
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
