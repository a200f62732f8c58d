"""The largest batch that fits a GPU: a line through two peaks says where to look, and peaks there decide."""

from collections.abc import Callable

from assay.absent.answer import Fit
from assay.fake.peak import GpuPeak

_MOST = 2**20
"""Largest batch that is looked for."""


def largest_batch(first: GpuPeak, peak_at: Callable[[int], GpuPeak]) -> int:
    """Return the largest batch of which it is not certain that it does not fit; 0 if not even one row fits.

    `first` is a known peak, `peak_at(rows)` finds others. Memory grows with the batch, in nearly a straight line, so
    about four further peaks are looked at.
    """
    assert first.batch_size is not None
    known = {first.batch_size: first.fit is not Fit.NO}

    def fits(rows: int) -> bool:
        if rows not in known:
            known[rows] = peak_at(rows).fit is not Fit.NO
        return known[rows]

    low, high = _bracket(first, peak_at, fits)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _bracket(first: GpuPeak, peak_at: Callable[[int], GpuPeak], fits: Callable[[int], bool]) -> tuple[int, int]:
    """Return a batch that fits, or 0, and a larger one that does not, near to each other."""
    assert first.batch_size is not None
    other = peak_at(2 * first.batch_size)
    slope = (other.in_use_bytes[0] - first.in_use_bytes[0]) / first.batch_size
    room = first.described.visible_bytes - first.in_use_bytes[0]
    guess = min(max(1, first.batch_size + int(room / max(slope, 1))), _MOST)
    step = 1
    if fits(guess):
        low = guess
        while low < _MOST and fits(low + step):
            low, step = low + step, 2 * step
        return low, low + step
    high = guess
    while high > 1 and not fits(max(1, high - step)):
        high, step = max(1, high - step), 2 * step
    return (max(1, high - step), high) if high > 1 else (0, 1)
