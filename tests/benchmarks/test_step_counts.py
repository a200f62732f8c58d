"""Steps of whole trainings on an absent GPU: a plain one waits for nothing, and one that reads each figure is seen."""

from pathlib import Path

import pytest

from support.absent import PYTHON, needs_cuda_build


def test_the_page_has_every_row_and_the_lines_that_read_often() -> None:
    import step_counts  # type: ignore[import-not-found]

    per_step = dict.fromkeys(step_counts.COUNTS, 7)
    lines = {"loop.py:77 (item)": 10, "rare.py:1 (item)": 1}
    found = [step_counts.Counted(row, per_step, 2, 19, lines, 10**9) for row in step_counts.ROWS]
    page = step_counts.page(found)
    for row in step_counts.ROWS:
        assert f"| {row.title} | 7 | 7 | 7 | 7 | 7 | 7 | 7 | 7 | 2 in 19 | 1.000 GB |" in page
        assert f"- {row.title}: `loop.py:77 (item)` 10 times" in page
    assert "rare.py" not in page


@pytest.mark.absent
@needs_cuda_build
def test_a_plain_step_waits_for_nothing_and_one_that_reads_each_figure_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import step_counts

    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(step_counts.__file__).parents[1] / "src"))
    each, plain = (row for row in step_counts.ROWS if row.stack == "")
    waits = ("pageable_copies", "synchronizations", "reads")
    found = {row: step_counts.counted(row, PYTHON, "", step_counts._TINY) for row in (each, plain)}
    assert [found[plain].per_step[name] for name in waits] == [0, 0, 0]
    assert [found[each].per_step[name] for name in waits] == [0, 2, 2]
    assert (found[plain].reads, found[each].reads) == (2, 38)
