import pytest

from assay.analysis.metrics.base import Unit
from assay.report.kit.blocks import quantity


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1536, "bytes", "1.50 KiB"),
        (0.0352, "seconds", "35.2 ms"),
        (31_200.0, "per_second", "31.2k"),
        (820_000, "count", "820k"),
        (2.41, "nats", "2.4100"),
        (0.125, "ratio", "0.1250"),
    ],
)
def test_a_value_is_printed_in_its_unit(value: float, unit: Unit, text: str) -> None:
    assert quantity(value, unit) == text
