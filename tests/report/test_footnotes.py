import pytest

from assay.report.footnotes import listed


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
