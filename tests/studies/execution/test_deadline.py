import pytest

from assay.config import load
from assay.studies.execution.deadline import Deadline, by_seed
from support.designs import design

CELLS = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=3)
WAVES = [(number, (cell,)) for number, cell in enumerate(CELLS)]


class Clock:
    """A clock that a wave of cells moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "cells"),
    [
        (None, 12),
        (1, 1),  # the first wave always begins
        (59, 5),  # a sixth would end after 60 seconds
        (60, 6),
        (1000, 12),
    ],
)
def test_no_wave_begins_that_would_probably_end_too_late(seconds: float | None, cells: int) -> None:
    clock, ran = Clock(), []
    deadline = Deadline(None if seconds is None else seconds / 3600, clock=clock)
    for number, _ in deadline.before(WAVES):
        ran.append(number)
        clock.now += 10
    assert ran == list(range(cells))
    assert deadline.reached == (cells < 12)


def test_cells_beside_each_other_count_together() -> None:
    clock, ran = Clock(), []
    deadline = Deadline(61 / 3600, slots=2, clock=clock)
    for number, _ in deadline.before(WAVES):
        ran.append(number)
        clock.now += 10 if number else 0  # two at once from the second on: 20 seconds each
    assert 4 <= len(ran) <= 6
    assert clock.now <= 100 + 61


def test_waves_are_taken_seed_by_seed() -> None:
    mixed = [*WAVES[1::2], *WAVES[::2]]
    seeds = [wave[0].seed for _, wave in by_seed(mixed)]
    assert seeds == sorted(seeds, key=seeds.index)
    assert sorted(number for number, _ in by_seed(mixed)) == list(range(12))
