"""Tables at the end of a page: memory while the model was built."""

from typing import Any

from assay.analysis.comparison import analyse
from assay.records.memory import Memory, PhaseMemory
from assay.report.page import render
from assay.report.page.ran import built_table
from support.comparisons import TREATMENTS, record

MEBI = 2**20


def built(peak: int, tensors: int | None = None) -> dict[str, Any]:
    """What changes in a result whose process held 200 MiB before its build."""
    phases = {
        "import": PhaseMemory(process_peak_bytes=300 * MEBI, anonymous_bytes=150 * MEBI, file_bytes=50 * MEBI),
        "build": PhaseMemory(process_peak_bytes=peak * MEBI, tensors_peak_bytes=tensors),
        "first_step": PhaseMemory(process_peak_bytes=900 * MEBI, anonymous_bytes=0, file_bytes=0),
    }
    return {"memory": Memory(tensors_peak_bytes=MEBI, phases=phases), "parameters": MEBI}


def test_a_build_is_shown_beside_the_process_before_it_and_all_weights() -> None:
    made = analyse(record(changes={"baseline": built(212), TREATMENTS[1]: built(206)}))
    table = built_table(made)
    assert table.columns == ("treatment", "process, before", "process, peak", "weights in float32")
    assert table.rows == (
        ("baseline", "200 MiB", "212 MiB", "4.00 MiB"),
        (TREATMENTS[1], "200 MiB", "206 MiB", "4.00 MiB"),
    )
    assert "Memory while the model is built" in render(made)


def test_a_device_that_counts_has_its_tensors() -> None:
    table = built_table(analyse(record(changes={"baseline": built(212, 5 * MEBI), TREATMENTS[0]: built(206)})))
    assert table.columns[-1] == "tensors, peak"
    assert [row[-1] for row in table.rows] == ["5.00 MiB", ""]


def test_records_without_phases_have_no_table() -> None:
    assert built_table(analyse(record())).rows == ()
