"""Speeds between and beyond measured sizes."""

import pytest

from assay.hardware.detect import OperatorSpeed, flash_key

SPEED = OperatorSpeed(at=(64, 256, 1024), forward=(1e9, 4e9, 1e9), backward=(2e9, 2e9, 2e9))


@pytest.mark.parametrize(
    ("size", "forward"),
    [(1, 1e9), (64, 1e9), (128, 2e9), (256, 4e9), (512, 2e9), (1024, 1e9), (10**9, 1e9)],
)
def test_a_speed_lies_on_a_line_between_logarithms_and_is_constant_beyond(size: int, forward: float) -> None:
    assert SPEED.seconds(size, 8e9, 6e9) == pytest.approx((8e9 / forward, 3.0))


def test_one_size_serves_all() -> None:
    one = OperatorSpeed(at=(64,), forward=(2.0,), backward=(1.0,))
    assert one.seconds(1, 4.0, 4.0) == one.seconds(10**6, 4.0, 4.0) == (2.0, 4.0)


@pytest.mark.parametrize(("depth", "nearest"), [(8, 16), (24, 32), (22, 16), (40, 32), (48, 64), (128, 64)])
def test_heads_have_the_speed_of_the_nearest_measured_depth(depth: int, nearest: int) -> None:
    assert flash_key(depth, "float32") == flash_key(nearest, "float32")
