"""The step time of any depth from those of two, and the file that keeps them."""

import random
from pathlib import Path

import pytest

from assay.config import Home
from assay.hardware.detect import Machine
from assay.hardware.rates import known_step_times, step_times_file, with_step_times
from assay.hardware.step_times import BETWEEN_PROCESSES, StepTimes, depths

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)


def times(seconds: list[float], a_block: float, fixed: float) -> StepTimes:
    """Turns of a machine that is slower by a factor in each turn."""
    return StepTimes(
        depths=(1, 3), turns=tuple((one * (fixed + a_block), one * (fixed + 3 * a_block)) for one in seconds)
    )


@pytest.mark.parametrize("layers", [4, 12, 96])
def test_a_step_of_equal_blocks_is_extrapolated_exactly(layers: int) -> None:
    found = times([1.0] * 5, a_block=0.25, fixed=2.0)
    assert found.serves(layers)
    assert found.seconds(layers) == pytest.approx(2.0 + 0.25 * layers)
    assert found.margin(layers) == pytest.approx(BETWEEN_PROCESSES)


def test_a_machine_that_was_slow_for_some_turns_moves_the_margin_more_than_the_seconds() -> None:
    calm, busy = times([1.0] * 20, 0.1, 1.0), times([1.0] * 11 + [1.9] * 9, 0.1, 1.0)
    assert busy.seconds(8) == pytest.approx(calm.seconds(8))
    drawn = random.Random(0)
    unsteady = times([1 + drawn.uniform(0, 0.5) for _ in range(20)], 0.1, 1.0)
    assert unsteady.margin(8) > 1.2 * calm.margin(8)


def test_more_turns_make_the_margin_smaller() -> None:
    drawn = random.Random(1)
    turns = [1 + drawn.uniform(0, 0.5) for _ in range(64)]
    assert times(turns, 0.1, 1.0).margin(8) < times(turns[:8], 0.1, 1.0).margin(8)


@pytest.mark.parametrize(("others", "widens"), [(None, False), (0.0, False), (0.05, False), (0.2, True), (0.5, True)])
def test_a_steady_load_makes_the_margin_wider_although_all_turns_agree(others: float | None, widens: bool) -> None:
    loaded = times([1.0] * 9, 0.1, 1.0).model_copy(update={"others_share": others})
    assert loaded.under_load is widens
    expected = (BETWEEN_PROCESSES**2 + (others or 0.0) ** 2) ** 0.5 if widens else BETWEEN_PROCESSES
    assert loaded.margin(8) == pytest.approx(expected)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_shallow_model_is_timed_as_it_is(layers: int) -> None:
    assert depths(layers) == (layers,)
    found = StepTimes(depths=(layers,), turns=((0.5,), (0.7,), (0.6,)))
    assert found.seconds(layers) == 0.6
    assert not found.serves(4)


def test_a_deep_step_that_was_quicker_by_chance_does_not_make_deeper_ones_negative() -> None:
    found = StepTimes(depths=(1, 3), turns=((1.0, 0.9),) * 3)
    assert found.seconds(100) == 1.0


def test_the_file_keeps_times_apart_by_threads_and_by_step(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.ready()
    one, two = times([1.0], 0.1, 1.0), times([2.0], 0.1, 1.0)
    for threads, key, found in ((1, "a", one), (2, "a", two), (1, "b", two)):
        step_times_file(home).write_bytes(with_step_times(home, MACHINE, "cpu", {key: found}, threads))
    assert known_step_times(home, MACHINE, 1) == {"a": one, "b": two}
    assert known_step_times(home, MACHINE, 2) == {"a": two}
    assert known_step_times(home, MACHINE, 12) == {}
    other = MACHINE.model_copy(update={"processor": "another"})
    assert known_step_times(home, other, 1) == {}


def test_a_damaged_file_counts_as_empty(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.ready()
    step_times_file(home).write_text("{")
    assert known_step_times(home, MACHINE, 1) == {}
