"""The answer over ranks: which ranks run, the fullest, the first that failed, and sums of collectives."""

from typing import Any

import pytest

from assay.absent.gpus import ABSENT
from assay.absent.observation import Collective
from assay.absent.ranks_answer import check_launcher, chosen_ranks, count_repeats, nccl_bytes, payloads, ranks_of
from assay.errors import UsageError
from assay.records.status import Status
from support.absent import GATHER, SCATTER, over_two


def test_without_a_choice_the_first_and_the_last_rank_are_run() -> None:
    assert ranks_of(16, None, None).run == (0, 15)
    assert ranks_of(4, None, (2, 1, 2)).run == (1, 2)


def test_a_rank_has_the_variables_of_torchrun() -> None:
    found = ranks_of(16, 8, (11,)).variables(11)
    wanted = {
        "RANK": "11",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
    }
    assert wanted.items() <= found.items()


@pytest.mark.parametrize(("count", "per_host"), [(2, 2), (8, 8), (64, 8)])
def test_a_host_has_eight_devices_at_most(count: int, per_host: int) -> None:
    assert ranks_of(count, None, None).per_host == per_host


def test_chosen_ranks_are_numbers_or_all() -> None:
    assert chosen_ranks("0,3", 4) == (0, 3)
    assert chosen_ranks("all", 3) == (0, 1, 2)
    with pytest.raises(UsageError, match="give numbers such as 0,3, or all"):
        chosen_ranks("first", 4)


@pytest.mark.parametrize(
    ("count", "per_host", "chosen", "sentence"),
    [
        (1, None, None, "--ranks is 1; give 2 to 4096"),
        (12, None, None, "12 ranks do not fill hosts of 8 devices"),
        (4, None, (4,), "--rank 4 does not exist; 4 ranks are 0 to 3"),
        (4, None, (-1,), "--rank -1 does not exist"),
    ],
)
def test_impossible_ranks_are_one_sentence(
    count: int, per_host: int | None, chosen: tuple[int, ...] | None, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        ranks_of(count, per_host, chosen)


@pytest.mark.parametrize(
    "command",
    ["torchrun --nproc-per-node 8 a.py", "python -m torch.distributed.run a.py", "/env/bin/accelerate launch a.py"],
)
def test_a_launcher_is_refused_because_ranks_take_its_place(command: str) -> None:
    with pytest.raises(UsageError, match=r"--ranks takes the place of .*name the script itself"):
        check_launcher(command.split())


def test_a_script_is_no_launcher() -> None:
    check_launcher(["python", "train.py", "--note", "torchrun"])


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
    assert list(count_repeats(calls)) == [(gather, times), (scatter, 1), (gather, 1)]


MIB, MB = 2**20, 10**6


def call(name: str, *ranks: int) -> Collective:
    return Collective(name=name, bytes=4 * MIB, ranks=ranks)


def test_a_connection_has_the_sizes_that_nccl_logs() -> None:
    """Both sizes are those of NVIDIA/nccl#1685: 10,485,760 and 2,097,152 bytes."""
    one_channel = {"NCCL_MAX_NCHANNELS": "1"}
    assert nccl_bytes([call("all_reduce", 0, 1)], one_channel) == (10_485_760 + 2_097_152, 3 * (10_485_760 + 2_097_152))


@pytest.mark.parametrize(("ranks", "measured"), [((0, 1), 544 * MB), ((0, 1, 2, 3), 688 * MB)])
def test_groups_of_a100_took_bytes_within_the_range(ranks: tuple[int, ...], measured: int) -> None:
    low, high = nccl_bytes([call("all_reduce", *ranks)] * 5, {})
    assert low < measured < high


def test_an_all_to_all_among_eight_reaches_every_peer() -> None:
    group = tuple(range(8))
    _, reduced = nccl_bytes([call("all_reduce", *group)], {})
    _, both = nccl_bytes([call("all_reduce", *group), call("all_to_all", *group)], {})
    assert both - reduced == 7 * 32 * 12 * MIB
    assert both + 790 * MB > 4340 * MB, "after an all-to-all, with the context"


def test_each_group_has_buffers_of_its_own_and_one_rank_has_none() -> None:
    one = nccl_bytes([call("all_gather", 0, 1)], {})
    assert nccl_bytes([call("all_gather", 0, 1), call("all_gather", 0, 2)], {}) == (2 * one[0], 2 * one[1])
    assert nccl_bytes([call("all_gather", 0)], {}) == nccl_bytes([], {}) == (0, 0)


def test_the_size_of_the_first_buffer_may_be_stated() -> None:
    default, smaller = (nccl_bytes([call("broadcast", 0, 1)], {"NCCL_BUFFSIZE": text}) for text in ("x", str(MIB)))
    assert smaller[0] == default[0] - 2 * 2 * MIB
