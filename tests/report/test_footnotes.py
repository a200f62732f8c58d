import pytest

from assay.analysis.comparison import analyse
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


def test_a_column_that_a_system_does_not_tell_is_named_with_the_reason() -> None:
    told = {"memory.process_peak_bytes": "only Linux has it", "blocks.load": "no column, so it is not said"}
    found = footnotes(analyse(record(changes={TREATMENTS[0]: {"missing": told}})))
    assert "Not measured: process, peak (only Linux has it)." in found
    assert not any("Not measured" in one for one in footnotes(analyse(record())))
