"""The state of an AdamW in 8 bits: by hand for GPT-2 124M, at the edges of the rule, and as torchao makes it."""

import pytest
import torch

from assay.config import ModelConfig, TrainingConfig
from assay.cost import Tensor, parameters
from assay.cost.optimizers.updates import Pieces
from assay.optimizations.adamw_8bit import EightBitAdamWUpdate
from assay.optimizations.adamw_8bit.step import adamw_8bit
from support.optimizers import PIECES, state_bytes

GPT2 = ModelConfig(n_layer=12, n_head=12, n_embd=768, context_length=1024, vocab_size=50257)


def predicted(pieces: Pieces) -> int:
    return sum(one.nbytes for one in EightBitAdamWUpdate().state(pieces))


def test_gpt2_124m_by_hand() -> None:
    matrices = (50257 + 1024) * 768 + 12 * 12 * 768 * 768
    vectors = 12 * (2 * 2 + 3 + 1 + 4 + 1) * 768 + 2 * 768
    assert matrices + vectors == 124_439_808
    codes, scales, tables = matrices, 4 * matrices // 256, (2 + 12 * 4) * 4 * 256
    counts = 4 * (2 + 12 * (4 + 8) + 2)
    by_hand = 2 * (codes + scales + tables + 4 * vectors) + counts
    assert by_hand == 253_595_624
    assert predicted(parameters(GPT2)) == by_hand


@pytest.mark.parametrize(
    ("shape", "moment"),
    [((4095,), 4 * 4095), ((16, 255), 4 * 4080), ((4096,), 4096 + 64 + 1024), ((4097,), 4 * 4097), ((5, 1024), 6224)],
)
def test_small_tensors_and_those_that_blocks_do_not_divide_stay_wide(shape: tuple[int, ...], moment: int) -> None:
    assert predicted({"w": Tensor("w", shape, batched=False)}) == 2 * moment + 4


def test_torchao_keeps_what_is_predicted() -> None:
    with torch.compiler.set_stance("force_eager"):
        assert state_bytes(adamw_8bit(TrainingConfig())) == predicted(PIECES)
