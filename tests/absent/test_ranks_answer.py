"""The answer over ranks: the fullest rank, the first that failed, and sums of collectives."""

from typing import Any

import pytest

from assay.absent.devices import ABSENT
from assay.absent.observation import Collective
from assay.absent.ranks_answer import payloads, repeated
from assay.records.status import Status
from support.absent import GATHER, SCATTER, over_two


def test_the_fullest_rank_decides_what_is_left_for_nccl() -> None:
    found = over_two()
    assert (found.fullest, found.status, found.missing) == (3, Status.DONE, 2)
    assert found.left_bytes == ABSENT["h100"].visible_bytes - 2**31 - 790_000_000


def test_a_rank_that_failed_comes_before_a_fuller_one() -> None:
    found = over_two(ended={"how": "raised", "error": "ValueError", "message": "no"})
    assert found.fullest == 3
    assert found.status is not Status.DONE


def test_values_have_every_rank_and_a_range_for_nccl() -> None:
    found: Any = over_two().to_dict()
    range_of_one_group = [24 * 2**20, 32 * 3 * 12 * 2**20]
    assert found["nccl_bytes"] == {"0": range_of_one_group, "3": range_of_one_group}
    assert list(found["by_rank"]) == ["0", "3"]
    assert found["by_rank"]["3"]["reserved_peak_bytes"] == 2**31


@pytest.mark.parametrize("times", [1, 3])
def test_collectives_are_summed_by_kind_and_group_and_counted_in_order(times: int) -> None:
    gather, scatter = Collective.model_validate(GATHER), Collective.model_validate(SCATTER)
    calls = [gather] * times + [scatter, gather]
    assert payloads(calls)[0].bytes == max(300, 100 * (times + 1))
    assert {(one.name, one.calls) for one in payloads(calls)} == {("all_gather", times + 1), ("reduce_scatter", 1)}
    assert list(repeated(calls)) == [(gather, times), (scatter, 1), (gather, 1)]
