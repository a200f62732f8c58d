import pytest

from assay.analysis.comparison import analyse
from assay.records.memory import Memory, PeakBlock
from assay.records.prediction import Predicted
from assay.report.footnotes import footnotes, listed
from support.comparisons import TREATMENTS, record


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"a": "1 %"}, "a 1 %"),
        ({"a": "1 %", "b": "1 %"}, "1 % in each of 2 rows"),
        ({"a": "1 %", "b": "2 %", "c": "1 %"}, "a 1 %; b 2 %; c 1 %"),
        ({**dict.fromkeys("abcde", "0 %"), "f": "2 %"}, "f 2 %; 0 % in each of 5 other rows"),
    ],
)
def test_a_text_that_many_rows_share_is_said_once(told: dict[str, str], says: str) -> None:
    assert listed(told) == says


def test_blocks_that_were_not_predicted_are_named_by_row() -> None:
    block = PeakBlock(nbytes=4096, count=2, made="batches.py:68")
    known = {"predicted": Predicted(peak_blocks=(block.model_copy(update={"count": 1}),))}
    found = footnotes(analyse(record(changes={TREATMENTS[0]: known | {"memory": Memory(peak_blocks=(block,))}})))
    said = (
        f"Against its prediction, a measured peak has: {TREATMENTS[0]} one block of 4,096 bytes more (batches.py:68)."
    )
    assert said in found
    assert not any("Against its prediction" in one for one in footnotes(analyse(record())))


def test_a_column_that_a_system_does_not_tell_is_named_with_the_reason() -> None:
    told = {"memory.process_peak_bytes": "only Linux has it", "blocks.load": "no column, so it is not said"}
    found = footnotes(analyse(record(changes={TREATMENTS[0]: {"missing": told}})))
    assert "Not measured: process, peak (only Linux has it)." in found
    assert not any("Not measured" in one for one in footnotes(analyse(record())))
