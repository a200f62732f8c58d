"""Seconds of kernels: those of the table where it has the shape, and in proportion to datasheets elsewhere."""

import pytest

from assay.hardware.devices import DEVICES
from assay.hardware.kernel_seconds import (
    BACKWARD_LAUNCH_SECONDS,
    COMPILED,
    LAUNCH_SECONDS,
    MEASURED_ON,
    PRODUCT_LAUNCH_SECONDS,
    UPDATE_LAUNCH_SECONDS,
    Kernel,
    speeds_of,
)
from assay.hardware.measured_kernels import (
    ATTENTION,
    BANDWIDTH,
    BATCHED,
    NARROWING,
    PLAIN,
    PRODUCT,
    START_SECONDS,
    WIDENING,
)

H200, A100 = speeds_of(MEASURED_ON), speeds_of("a100-40gb")


def product(tokens: int, inner: int, outer: int, dtype: str, back: bool = False) -> Kernel:
    wide = 4 if dtype in ("float32", "tf32") else 2
    sides = wide * (tokens * inner + inner * outer + tokens * outer)
    return Kernel(PRODUCT, dtype, sides, 2.0 * tokens * inner * outer, (tokens, inner, outer), back)


@pytest.mark.parametrize(
    ("kernel", "measured"),
    [
        (product(8192, 768, 3072, "float32"), 0.000782),
        (product(8192, 8192, 8192, "bfloat16"), 0.00157),
        (product(8192, 768, 50257, "bfloat16"), 0.00665),
        (product(4096, 4096, 4096, "tf32"), 0.00038),
        (Kernel(ATTENTION + "cudnn", "bfloat16", 0, 4 * 144 * 1024**2 * 64, (12, 12, 1024, 64)), 69.8e-6),
        (Kernel("softmax", "float32", 2 * 402653184), 0.000204),
        (Kernel("masked_fill", "bfloat16", 2 * 201326592, back=True), 0.000363),
        (Kernel(WIDENING, "float32", 3 * 50331648), 7.67e-05),
        (Kernel(BATCHED, "float32", 4 * 96 * (1024**2 + 2 * 65536), 2 * 96 * 1024**2 * 64, (96, 1024, 64)), 0.000383),
    ],
)
def test_a_measured_shape_has_its_measured_time(kernel: Kernel, measured: float) -> None:
    assert H200.seconds(kernel) == pytest.approx(measured, rel=0.03)


def test_a_backward_product_is_half_of_what_was_measured_for_both() -> None:
    assert 2 * H200.seconds(product(8192, 768, 50304, "bfloat16", back=True)) == pytest.approx(0.00198, rel=0.03)


def test_a_shape_between_measured_ones_has_a_speed_between_theirs() -> None:
    def rate(tokens: int) -> float:
        one = product(tokens, 768, 2304, "float32")
        return one.flops / H200.seconds(one)

    low, high = sorted((rate(8192), rate(12288)))
    assert 0.95 * low < rate(10240) < 1.05 * high


def test_sides_that_are_not_aligned_are_slow_except_in_float32() -> None:
    for dtype, slower in (("bfloat16", 5.0), ("tf32", 2.0), ("float32", 0.99)):
        odd, even = (H200.seconds(product(8192, 768, columns, dtype)) for columns in (50257, 50264))
        assert odd / even > slower
        assert dtype != "float32" or odd / even < 1.01


def test_another_device_takes_longer_as_its_datasheet_says() -> None:
    here, there = DEVICES["a100-40gb"], DEVICES[MEASURED_ON]
    moved = Kernel(PLAIN, "float32", 1e9)
    slower = (A100.seconds(moved) - START_SECONDS) / (H200.seconds(moved) - START_SECONDS)
    assert slower == pytest.approx(there.bandwidth_bytes / here.bandwidth_bytes)
    whole = product(8192, 8192, 8192, "bfloat16")
    ratio = A100.seconds(whole) / H200.seconds(whole)
    assert ratio == pytest.approx(there.flops["bfloat16"] / here.flops["bfloat16"], rel=0.02)


def test_a_dtype_without_a_peak_has_no_time() -> None:
    assert "bfloat16" not in speeds_of("t4").dtypes
    with pytest.raises(KeyError):
        speeds_of("t4").seconds(product(64, 64, 64, "bfloat16"))


def test_narrowing_is_faster_than_widening_and_nothing_is_faster_than_the_memory() -> None:
    wide, narrow = (H200.seconds(Kernel(kind, "float32", 1e9)) for kind in (WIDENING, NARROWING))
    assert 1e9 / DEVICES[MEASURED_ON].bandwidth_bytes < narrow < wide
    assert H200.seconds(Kernel(PLAIN, "float32", 1e9)) == pytest.approx(START_SECONDS + 1e9 / BANDWIDTH, rel=0.05)


def test_launches_are_those_of_the_table() -> None:
    assert (LAUNCH_SECONDS, BACKWARD_LAUNCH_SECONDS) == (9.51e-6, 2.16e-5)
    assert pytest.approx(0.00975 / 146 / 8.5) == UPDATE_LAUNCH_SECONDS
    assert LAUNCH_SECONDS < PRODUCT_LAUNCH_SECONDS < 2 * LAUNCH_SECONDS
    assert pytest.approx(1.185, abs=0.001) == COMPILED


@pytest.mark.parametrize("length", [256, 1024, 4096, 16384])
@pytest.mark.parametrize("back", [False, True])
def test_fused_attention_takes_no_longer_than_what_it_replaces_on_another_device(length: int, back: bool) -> None:
    """By the H200's share of its peak an RTX 3090 took longer, which has few products for each byte that it moves."""
    sides = 2 * 16 * (length**2 + 2 * length * 128)
    fused = Kernel(
        ATTENTION + "flash", "bfloat16", 0, (2.5 if back else 1) * 4 * 16 * length**2 * 128, (1, 16, length, 128), back
    )
    flops, count = 2 * 16 * length**2 * 128, 4 if back else 2
    replaced = [
        Kernel(BATCHED, "bfloat16", sides, flops, (16, length, 128), back or place > 0) for place in range(count)
    ]
    passes = Kernel(PLAIN, "bfloat16", (3 if back else 2) * 2 * 16 * length**2)
    for name in DEVICES:
        there = speeds_of(name)
        if "bfloat16" in there.dtypes and not there.measured:
            assert there.seconds(fused) <= sum(map(there.seconds, (*replaced, passes))) * (1 + 1e-9)
    assert A100.seconds(fused._replace(dtype="tf32", kind=ATTENTION + "efficient")) > 0
