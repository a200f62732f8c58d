"""The table of measured operators: what it has, what is left out of it, and speeds between its points."""

from math import log

import pytest

from assay.hardware import measured_kernels
from assay.hardware.devices import DEVICES
from assay.hardware.measured_kernels import (
    FUSED,
    PLAIN,
    PRODUCT,
    SpeedPoint,
    between,
    moving_speeds,
    norms,
    products,
    rows,
    table,
)


def test_the_table_names_its_device_and_its_source() -> None:
    assert table()["device"] == "NVIDIA H200"
    assert "driver" in table()["source"]
    assert len(rows()) == 181
    assert all(one.forward > 0 for one in rows())


def test_small_operators_are_left_out_because_the_host_was_slower() -> None:
    small = tuple(map(log, (512, 768, 768)))
    for dtype in ("float32", "tf32", "bfloat16"):
        points = products(PRODUCT, dtype, False, True)
        assert small not in {one.place for one in points}
        assert len(points) >= 9
    # 1,024 rows of 768 numbers took as long as eight times as many.
    assert all(one.place[0] > log(2 * 4 * 1024 * 768) for one in moving_speeds(PLAIN, "float32", False))


@pytest.mark.parametrize("dtype", ["float32", "tf32"])
def test_no_rate_of_products_apart_from_their_bytes_is_far_above_the_peak(dtype: str) -> None:
    peak = DEVICES["h200"].flops[dtype]
    for back in (False, True):
        assert all(0.2 * peak < one.speed < 1.3 * peak for one in products(PRODUCT, dtype, back, True))


def test_both_formats_of_16_bits_share_the_faster_backward() -> None:
    place = tuple(map(log, (8192, 3072, 768)))
    (found,) = (one.speed for one in products(PRODUCT, "float16", True, True) if one.place == place)
    flops, sides = 2 * 8192 * 3072 * 768, 8192 * 3072 + 3072 * 768 + 8192 * 768
    left = 0.000147 - 2 * (measured_kernels.START_SECONDS + 2 * sides / measured_kernels.BANDWIDTH)
    assert found == pytest.approx(2 * flops / left)
    assert products(PRODUCT, "bfloat16", True, True) == products(PRODUCT, "float16", True, True)


def test_a_speed_is_that_of_its_point_or_between_its_neighbours() -> None:
    points = (SpeedPoint((log(1.0),), 10.0), SpeedPoint((log(100.0),), 1000.0))
    assert between(points, (log(1.0),)) == pytest.approx(10.0, rel=0.01)
    assert between(points, (log(10.0),)) == pytest.approx(100.0, rel=0.01)


def test_norms_are_slower_with_more_and_shorter_rows() -> None:
    short, long = ((log(16384), log(384)), (log(8192), log(3072)))
    assert between(norms("float32", False), short) < between(norms("float32", False), long)


def test_a_fused_update_reads_and_writes_seven_times() -> None:
    (one,) = moving_speeds(FUSED, "float32", False)
    assert one.speed == pytest.approx(7 * 4 * 85009920 / 0.000789)


def test_an_embeddings_backward_takes_long_beside_its_bytes() -> None:
    assert 2e-4 < measured_kernels.embedding_seconds() < 3e-4
