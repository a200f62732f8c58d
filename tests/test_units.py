"""Numbers as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import UsageError
from assay.units import (
    finite,
    format_bytes,
    format_count,
    format_flops,
    format_percent,
    format_seconds,
    format_steps,
    json_text,
    parse_bytes,
    parse_count,
)


@pytest.mark.parametrize("text", ["1,5", "1,5B", "1,50,000", ",5", "1500,000", "1,000,00k"])
def test_a_comma_that_may_be_a_decimal_point_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="comma"):
        parse_count(text)
    assert parse_count("1,500,000") == parse_count("1_500_000") == parse_count("1,500.0k") == 1.5e6


@pytest.mark.parametrize(
    ("text", "count"), [("40GiB", 40 * 2**30), ("16 GB", 16 * 10**9), ("1024", 1024), ("1.5 KiB", 1536)]
)
def test_amounts_of_memory_are_read(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1 GB", "1 GiBB", "one"])
def test_a_text_that_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="amount of memory"):
        parse_bytes(text)


@given(count=st.integers(0, 2**50))
def test_printed_bytes_read_back_within_their_digits(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=6e-3)


def test_one_step_is_one() -> None:
    assert [format_steps(count) for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]


def test_figures_are_short() -> None:
    assert format_bytes(1536 * 2**20) == "1.50 GiB"
    assert format_count(124_439_808) == "124M"
    assert format_count(999_999) == "1.00M"
    assert format_flops(874_944_921_600) == "875 GFLOP"
    assert [format_seconds(value) for value in (2e-6, 0.0352, 1.2, 185, 7800, 6e5, 7e5, 6e7, 7e7, 4e10)] == [
        "2.00 µs",
        "35.2 ms",
        "1.20 s",
        "3 min 05 s",
        "2 h 10 min",
        "166 h 40 min",
        "8.1 days",
        "694.4 days",
        "2.22 years",
        "1.27k years",
    ]
    assert [format_percent(value) for value in (-0.123, 0.05, 0.0)] == ["−12.3 %", "+5.0 %", "0.0 %"]


@pytest.mark.parametrize(
    ("text", "count"), [("300B", 3e11), ("1.5T", 1.5e12), ("2e9", 2e9), ("512k", 512e3), (" 1,000 ", 1000), ("3g", 3e9)]
)
def test_counts_are_read(text: str, count: float) -> None:
    assert parse_count(text) == pytest.approx(count)


@pytest.mark.parametrize("text", ["", "B", "x", "10x", "1.2.3"])
def test_a_text_that_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        parse_count(text)


def test_numbers_that_json_cannot_write_become_none() -> None:
    assert finite({"a": [1.0, float("inf")], "b": (float("nan"), "x", 2)}) == {"a": [1.0, None], "b": [None, "x", 2]}


def test_json_has_null_for_what_it_cannot_write() -> None:
    assert json_text({"b": [1.5, float("inf")], "a": float("nan")}) == '{"b": [1.5, null], "a": null}'
    assert json_text({"ü": 1}, ensure_ascii=False) == '{"ü": 1}'
