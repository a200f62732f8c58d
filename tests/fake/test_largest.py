"""The search of the largest batch, over steps whose memory is a known function of it."""

import pytest

from assay.absent.devices import absent_device
from assay.fake.largest import largest_batch
from assay.fake.peak import GpuPeak

ROOM = absent_device("l4").visible_bytes - 700_000_000


def peak(rows: int, fixed: int, each: int, bend: float = 0.0) -> GpuPeak:
    """A step whose memory grows with its rows, and faster with a bend."""
    requested = fixed + int(rows * each * (1 + bend * rows))
    return GpuPeak(
        device="l4",
        torch="2.13.0",
        ran=False,
        parameters=1,
        peak_bytes=requested,
        requested_peak_bytes=requested,
        instant="backward: MmBackward",
        parts={},
        batch_size=rows,
    )


@pytest.mark.parametrize("start", [1, 3, 8, 500])
@pytest.mark.parametrize(
    ("fixed", "each", "bend"), [(10**9, 10**8, 0.0), (10**9, 10**8, 0.01), (0, 3 * 10**7, 0.0), (ROOM, 10**8, 0.0)]
)
def test_the_largest_batch_is_the_last_that_fits(start: int, fixed: int, each: int, bend: float) -> None:
    looked_at: list[int] = []

    def peak_at(rows: int) -> GpuPeak:
        looked_at.append(rows)
        return peak(rows, fixed, each, bend)

    found = largest_batch(peak(start, fixed, each, bend), peak_at)
    right = next(rows - 1 for rows in range(1, 10**4) if peak(rows, fixed, each, bend).requested_peak_bytes > ROOM)
    assert found == right
    assert len(looked_at) < 25
