"""What ranks hold and send, for more stacks than the quick suite has time for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.ranks import compute
from support.ranks.ledger import case, holds_what_was_said, sends_what_was_said

pytestmark = pytest.mark.slow

STACKS = {
    "fully_sharded:mixed_precision=true": 2,
    "fully_sharded:mixed_precision=true,reshard=false+gradient_accumulation:micro_batches=2": 2,
    "many-tokens zero_optimizer": 2,
    "pipeline_parallel:schedule=zero-bubble": 2,
    "tensor_parallel+bf16_mixed+gradient_accumulation:micro_batches=2": 2,
    "sequence_parallel+tensor_parallel": 2,
    "sequence_parallel+tensor_parallel+sdpa_attention+activation_checkpointing": 2,
    "pipeline_parallel:schedule=gpipe": 2,
    "fully_sharded+gradient_accumulation:micro_batches=2": 2,
    "tensor_parallel+sdpa_attention+activation_checkpointing": 2,
    "pipeline_parallel:split=1-3": 2,
    "lora+fully_sharded": 2,
    "fully_sharded+bf16_full": 2,
    "lora+data_parallel": 2,
    "lora+zero_optimizer": 2,
    "lora:targets=mlp+fully_sharded": 2,
    "lora+fully_sharded:reshard=false+bf16_mixed": 2,
    "lora+fully_sharded+gradient_accumulation:micro_batches=2": 2,
    "lora+fully_sharded:mixed_precision=true+gradient_accumulation:micro_batches=4": 2,
    "fully_sharded:mixed_precision=true+gradient_accumulation:micro_batches=2": 2,
    "many-tokens fully_sharded:mixed_precision=true+gradient_accumulation:micro_batches=2": 2,
    "most-tokens fully_sharded+gradient_accumulation:micro_batches=4": 2,
    "tensor_parallel+bf16_full": 2,
    "data_parallel+fp16_mixed": 2,
    "many-tokens fully_sharded": 2,
    "many-tokens sequence_parallel+tensor_parallel": 2,
    "zero_optimizer+tensor_parallel": 4,
    "fully_sharded+tensor_parallel": 4,
    "pipeline_parallel+sequence_parallel+tensor_parallel": 4,
    "pipeline_parallel+fully_sharded": 4,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    answers = compute([case(*one) for one in STACKS.items()], tmp_path_factory.mktemp("ranks"))
    return {stack: answer["ranks"] for stack, answer in zip(STACKS, answers, strict=True)}


@pytest.mark.parametrize("stack", STACKS)
def test_bytes_that_a_rank_hands_to_collectives_are_predicted_exactly(found: Mapping[str, Any], stack: str) -> None:
    sends_what_was_said(found[stack], stack)


@pytest.mark.parametrize("stack", STACKS)
def test_memory_of_a_rank_is_predicted(found: Mapping[str, Any], stack: str, tmp_path: Path) -> None:
    holds_what_was_said(found[stack], stack, tmp_path)
