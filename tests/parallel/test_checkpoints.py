"""A checkpoint of several ranks: another program goes on from it as the one that wrote it does, bit for bit."""

from pathlib import Path

import pytest

from support.ranks import compute
from support.ranks.equality import case

ON = {
    2: (
        "fully_sharded",
        "zero_optimizer",
        "sequence_parallel+tensor_parallel",
        "pipeline_parallel:schedule=zero-bubble",
    ),
    4: ("zero_optimizer+tensor_parallel", "pipeline_parallel+zero_optimizer"),
}


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_resumed_run_goes_on_bit_for_bit(ranks: int, tmp_path: Path) -> None:
    folders = [tmp_path / str(index) for index in range(len(ON[ranks]))]
    for folder in folders:
        folder.mkdir()
    only = {"steps": 3, "whole": False, "traced": False}
    cases = [{**case(stack, ranks, "float32"), **only} for stack in ON[ranks]]
    asked = [{**one, "folder": str(folder)} for one, folder in zip(cases, folders, strict=True)]
    for stack, answer in zip(ON[ranks], compute(asked, tmp_path), strict=True):
        went_on, resumed = answer["resumed"]
        assert resumed == went_on, stack
        assert went_on[1] != went_on[0]
