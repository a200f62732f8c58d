"""Time between the clocks of steps: a sum over all of them, and a median that one interruption does not make."""

import pytest

from assay.records.timing import FEWEST_GAPS, LEAST_DISTURBANCE_SECONDS, LOOP_SECONDS, Between, Block

STEP_SECONDS = 0.01


def block(steps: int, gap: float) -> Block:
    return Block(
        steps=steps,
        seconds=STEP_SECONDS * steps,
        median_step_seconds=STEP_SECONDS,
        tokens=64 * steps,
        usual_between_seconds=gap,
        between_seconds=gap * steps,
    )


def between(*blocks: Block) -> Between:
    found = Between.of(blocks)
    assert found is not None
    return found


def test_a_record_of_an_earlier_version_has_none() -> None:
    older = block(3, 0.0).model_copy(update={"between_seconds": None, "usual_between_seconds": None})
    assert Between.of([older]) is None


def test_one_interruption_is_no_habit() -> None:
    assert not between(block(1, 0.002)).too_much()
    assert not between(*(block(1, 0.002 if number == 3 else 0.0) for number in range(2 * FEWEST_GAPS))).too_much()


@pytest.mark.parametrize("steps", [1, 5])
def test_work_after_every_step_is_seen_however_short_its_blocks_are(steps: int) -> None:
    assert between(*(block(steps, 0.1 * STEP_SECONDS + LOOP_SECONDS) for _ in range(FEWEST_GAPS))).too_much()


def test_the_usual_loss_of_time_is_that_of_the_loop() -> None:
    assert not between(*(block(5, LOOP_SECONDS) for _ in range(5))).too_much()


def test_much_time_counts_after_a_single_step() -> None:
    assert between(block(1, 1.1 * LEAST_DISTURBANCE_SECONDS)).too_much()
