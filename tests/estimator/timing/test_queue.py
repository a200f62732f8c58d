"""A queue of launches: the slower of host and device, and waits between them."""

import random

import pytest

from assay.estimator.timing.queue import WAIT, Queued, play, play_repeated


@pytest.mark.parametrize(("host", "device", "seconds"), [(1.0, 5.0, 21.0), (5.0, 1.0, 21.0), (2.0, 2.0, 10.0)])
def test_a_step_takes_as_long_as_the_slower_of_host_and_device(host: float, device: float, seconds: float) -> None:
    played = play([Queued(host, device)] * 4)
    assert played == (seconds, 4 * host, 4 * device)


def test_work_of_the_host_after_a_wait_is_added() -> None:
    forward, update = [Queued(1.0, 5.0)] * 2, [Queued(3.0, 1.0)]
    assert play([*forward, *update]).seconds == 12.0
    assert play([*forward, WAIT, *update]).seconds == 15.0


@pytest.mark.parametrize("seed", range(20))
def test_a_repeated_queue_is_the_queue_played_so_often(seed: int) -> None:
    drawn = random.Random(seed)
    queue = [Queued(drawn.random(), drawn.choice((0.0, 2 * drawn.random()))) for _ in range(drawn.randint(1, 12))]
    for times in (1, 2, 7):
        assert play_repeated(queue, times) == pytest.approx(play([*queue * times, WAIT]))


def test_a_launch_without_a_kernel_takes_the_hosts_time_only() -> None:
    assert play([Queued(2.0, 0.0), Queued(1.0, 4.0)]) == (7.0, 3.0, 4.0)
