"""Whose death explains how a run on several ranks ended."""

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from assay.runs.agent import _first, _is_the_cause
from assay.runs.record import Status


@pytest.mark.parametrize(
    ("rank", "exit_code", "status", "explains"),
    [
        (0, -9, Status.FAILED, True),
        (1, -9, Status.FAILED, True),
        (1, -9, None, True),
        (1, 1, Status.FAILED, True),
        (0, 1, Status.FAILED, False),
        (1, 1, Status.DIVERGED, False),
        (1, -6, Status.DONE, False),
        (0, -6, Status.BUDGET_REACHED, False),
    ],
)
def test_a_death_explains_a_run_that_was_not_over(
    rank: int, exit_code: int, status: Status | None, explains: bool
) -> None:
    failure = ProcessFailure(local_rank=rank, pid=1, exitcode=exit_code, error_file="nowhere")
    assert _is_the_cause(failure, status) is explains


def test_of_those_found_dead_together_the_killed_one_is_named() -> None:
    broken, killed = (
        ProcessFailure(local_rank=rank, pid=1, exitcode=code, error_file="nowhere") for rank, code in ((0, 1), (1, -9))
    )
    killed.timestamp = broken.timestamp + 1
    assert _first([broken, killed]) is killed
    killed.exitcode = 1
    assert _first([broken, killed]) is broken
