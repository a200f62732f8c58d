"""Equality with one device for longer and for more stacks than the quick suite has time for."""

from collections.abc import Mapping
from typing import Any

import pytest

from support.ranks import compute
from support.ranks.equality import (
    BESIDE_TENSOR,
    CROSSED,
    MORE_CROSSED,
    MORE_LOSSY,
    MORE_ON_FOUR,
    MORE_ON_TWO,
    MORE_STEPS,
    ON_TWO,
    STEPS,
    TECHNIQUES,
    agree,
    alone_of,
    case,
    exact,
    same_weights,
)

pytestmark = pytest.mark.slow

LONG = {stack: 2 for stack in (*ON_TWO, *MORE_ON_TWO) if exact(stack)} | dict.fromkeys((*CROSSED, *MORE_CROSSED), 4)
"""Held over all steps in both precisions, with its ranks."""
MORE = {
    **{one: 2 for one in MORE_ON_TWO if not exact(one)},
    **dict.fromkeys(MORE_ON_FOUR, 4),
    **{f"{one}+sdpa_attention": 2 for one in (*TECHNIQUES, *BESIDE_TENSOR)},
    "tensor_parallel:degree=4": 4,
    **{f"lora+{one}": 2 for one in ("data_parallel", "fully_sharded", "zero_optimizer")},
    "data_parallel+tensor_parallel": 4,
    "pipeline_parallel+sequence_parallel+tensor_parallel": 4,
    "gathered_context+tensor_parallel": 4,
    "pipeline_parallel+zero_optimizer": 4,
}
WANTED = [
    *((stack, dtype) for stack in LONG for dtype in ("float32", "float64")),
    *((stack, "float32") for stack in MORE),
]
FEW_STEPS = [(stack, "float32") for stack in MORE_LOSSY]
"""Held over as many steps as in the quick suite."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Any]:
    alone = sorted({(alone_of(stack), dtype) for stack, dtype in (*WANTED, *FEW_STEPS)})
    longer = {"steps": MORE_STEPS}
    cases = [
        *({**case(stack, 1, dtype), **longer} for stack, dtype in alone),
        *({**case(stack, LONG.get(stack) or MORE[stack], dtype), **longer} for stack, dtype in WANTED),
        *(case(stack, 2, dtype) for stack, dtype in FEW_STEPS),
    ]
    return dict(zip([*alone, *WANTED, *FEW_STEPS], compute(cases, tmp_path_factory.mktemp("ranks")), strict=True))


@pytest.mark.parametrize(("stack", "dtype"), WANTED)
def test_losses_and_norms_are_those_of_one_device(found: Mapping[tuple[str, str], Any], stack: str, dtype: str) -> None:
    assert len(found[stack, dtype]["losses"]) == MORE_STEPS
    agree(found[stack, dtype], found[alone_of(stack), dtype], 1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("stack", LONG)
def test_final_weights_are_those_of_one_device(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    same_weights(*(found[one, "float64"]["weights"] for one in (stack, alone_of(stack))))


@pytest.mark.parametrize("stack", MORE_LOSSY)
def test_bfloat16_stays_near(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    here, there = (found[one, "float32"]["losses"] for one in (stack, alone_of(stack)))
    assert here == pytest.approx(there[:STEPS], rel=2e-3)


@pytest.mark.parametrize(("stack", "dtype"), [*WANTED, *FEW_STEPS])
def test_every_rank_proves_every_technique(found: Mapping[tuple[str, str], Any], stack: str, dtype: str) -> None:
    for rank in found[stack, dtype]["ranks"]:
        assert len(rank["evidence"]) == len(stack.split("+"))
        assert all(evidence["verdict"] for evidence in rank["evidence"])
