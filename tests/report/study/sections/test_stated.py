"""The sentence on placebos; their table is tested with the other sections on the choice of a row."""

import pytest

from assay.analysis.comparison import analyse
from assay.report.study.sections.stated import PLACEBOS
from assay.report.study.view import StudyView
from support.swept import factorial_record


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ([8], ("1 row runs another row", "so it changes nothing. Its step time differs by ")),
        ([8, 16], ("2 rows run another row", "so they change nothing. Their step times differ by ")),
    ],
)
def test_one_placebo_is_one_row_and_two_are_two(batches: list[int], says: tuple[str, str]) -> None:
    vary = {"optimizations": ["none", {"placebo": "scaler"}], "training.batch_size": batches}
    said, _ = PLACEBOS.content(StudyView(analyse(factorial_record(vary, lambda levels: (1, 1, 2.4), noise=0.0))))
    assert str(said).startswith(says[0])
    assert says[1] in str(said)
    assert (" to " in str(said)) == (len(batches) > 1)
