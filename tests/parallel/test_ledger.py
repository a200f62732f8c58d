"""What each rank holds and sends is predicted: bytes of collectives exactly, tensors at their peak within 0.5 %.

More of the same, for whoever has the time, is in `test_more_ledger`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.ranks import compute
from support.ranks.ledger import case, holds_what_was_said, sends_what_was_said

ON_TWO = (
    "data_parallel",
    "fully_sharded",
    "fully_sharded:reshard=false+bf16_mixed",
    "zero_optimizer",
    "tensor_parallel",
    "pipeline_parallel:schedule=interleaved",
    "post-norm sequence_parallel+tensor_parallel",
    "pipeline_parallel+activation_checkpointing",
)
ON_FOUR = ("pipeline_parallel+data_parallel",)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    cases = [*(case(one, 2) for one in ON_TWO), *(case(one, 4) for one in ON_FOUR)]
    answers = compute(cases, tmp_path_factory.mktemp("ranks"))
    return {stack: answer["ranks"] for stack, answer in zip((*ON_TWO, *ON_FOUR), answers, strict=True)}


@pytest.mark.parametrize("stack", [*ON_TWO, *ON_FOUR])
def test_bytes_that_a_rank_hands_to_collectives_are_predicted_exactly(found: Mapping[str, Any], stack: str) -> None:
    sends_what_was_said(found[stack], stack)


@pytest.mark.parametrize("stack", [*ON_TWO, *ON_FOUR])
def test_memory_of_a_rank_is_predicted(found: Mapping[str, Any], stack: str, tmp_path: Path) -> None:
    holds_what_was_said(found[stack], stack, tmp_path)


@pytest.mark.parametrize("stack", [*ON_TWO, *ON_FOUR])
def test_every_rank_proves_every_technique(found: Mapping[str, Any], stack: str) -> None:
    for rank in found[stack]:
        assert [one["observed"] for one in rank["evidence"] if not one["verdict"]] == []
