"""Sequence parallelism: refused where it has nothing to divide, or cannot divide it evenly."""

import pytest

from assay.config import ModelConfig, Run, Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check
from support.runs import SHAPE

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def stacked(text: str, model: ModelConfig = SHAPE) -> Run:
    return Run(model=model, ranks=2, device="cpu", optimizations=tuple(map(Spec.parse, text.split("+"))))


def test_beside_tensor_parallelism_it_is_accepted() -> None:
    check(stacked("sequence_parallel+tensor_parallel"), CPU)


@pytest.mark.parametrize(
    ("text", "changes", "says"),
    [
        ("sequence_parallel", {}, "add tensor_parallel"),
        ("sequence_parallel:degree=4+tensor_parallel", {}, "give both the same degree"),
        ("sequence_parallel+tensor_parallel", {"context_length": 15}, "does not divide model.context_length=15"),
        ("sequence_parallel+tensor_parallel", {"n_expert": 4}, "a mixture of experts routes all tokens"),
    ],
)
def test_an_impossible_division_is_refused(text: str, changes: dict[str, int], says: str) -> None:
    with pytest.raises(Conflict, match=says):
        check(stacked(text, SHAPE.model_copy(update=changes)), CPU)
