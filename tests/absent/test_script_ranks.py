"""Ranks of a script over absent GPUs: torchrun's variables, and numbers that make no sense."""

import pytest

from assay.absent.script_ranks import check_launcher, chosen_ranks, ranks_of
from assay.errors import UsageError


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
