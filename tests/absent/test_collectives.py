"""The list of a rank's collectives: usual names, and the calls of one whole step."""

from typing import Any

import pytest

from assay.absent.inside.process_groups import CollectiveCalls, plain_name
from assay.absent.observation import ObservedCollectives as Observed


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("allreduce_", "all_reduce"),
        ("allreduce_coalesced_", "all_reduce"),
        ("_allgather_base_", "all_gather"),
        ("allgather_into_tensor_coalesced_", "all_gather"),
        ("_reduce_scatter_base_", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced_", "reduce_scatter"),
        ("alltoall_base_", "all_to_all"),
        ("broadcast_", "broadcast"),
        ("send", "send"),
        ("recv_any_source_", "recv"),
    ],
)
def test_operators_have_their_usual_names(operator: str, name: str) -> None:
    assert plain_name(operator) == name


def listed(*steps: tuple[int, ...]) -> dict[str, Any]:
    """What is kept after steps with calls of these sizes."""
    found = CollectiveCalls()
    for sizes in steps:
        for size in sizes:
            found.add("all_reduce", size, (0, 1))
        found.stepped()
    return found.content()


def test_the_calls_of_the_last_whole_step_are_kept_in_order() -> None:
    found = Observed.model_validate(listed((1,), (2, 3), (4, 5)), strict=False)
    assert [one.bytes for one in found.of_a_step] == [4, 5]
    assert found.calls == 5


def test_without_a_step_the_calls_of_the_process_are_kept() -> None:
    found = CollectiveCalls()
    found.add("broadcast", 8, (0, 1))
    assert [one["bytes"] for one in found.content()["of_a_step"]] == [8]


@pytest.mark.parametrize(("last", "alike"), [((2,), True), ((3,), False)])
def test_steps_that_differ_after_the_second_are_noted(last: tuple[int, ...], alike: bool) -> None:
    assert listed((9,), (1,), (2,), last)["alike"] is alike
