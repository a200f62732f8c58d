import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.data import Prepared
from assay.model import Block
from assay.training.stops import Diverged, is_out_of_memory, what_was_refused
from support.runs import tiny
from support.steps import loop_of, step_of, weights


def test_a_weight_that_is_not_finite_is_named(corpus: Prepared, tmp_path: Path) -> None:
    step = step_of(tiny(), corpus)
    with torch.no_grad():
        dict(step.named_parameters())["blocks.1.mlp.up.weight"][0, 0] = float("nan")
    with pytest.raises(Diverged, match=r"at step 0: the weight blocks\.1\.mlp\.up\.weight is the first"):
        loop_of(tiny(), step, corpus, tmp_path).advance(3)


def test_the_first_output_that_overflows_is_named_with_its_step(corpus: Prepared, tmp_path: Path) -> None:
    step = step_of(tiny(), corpus)
    loop = loop_of(tiny(), step, corpus, tmp_path)
    loop.advance(2)
    with torch.no_grad():
        dict(step.named_parameters())["blocks.1.mlp_norm.weight"].fill_(3.4e38)
    with pytest.raises(Diverged, match=r"at step 2: the output of blocks\.1\.mlp_norm is the first"):
        loop.advance(1)


def test_a_gradient_that_overflows_is_named_and_the_weights_stay(corpus: Prepared, tmp_path: Path) -> None:
    step = step_of(tiny(), corpus)
    first, _ = step.modules_of(Block)

    class Overflow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:  # type: ignore[override]
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient * float("inf")

    inner = first.forward
    first.forward = lambda x: Overflow.apply(inner(x))  # type: ignore[method-assign]
    before = weights(step)
    with pytest.raises(Diverged, match=r"the gradient of blocks\.0\.mlp\.down\.bias is the first"):
        loop_of(tiny(), step, corpus, tmp_path).advance(1)
    assert all(torch.equal(value, before[name]) for name, value in weights(step).items())


def test_weights_that_an_update_overflowed_are_named_by_the_evaluation_behind_it(
    corpus: Prepared, tmp_path: Path
) -> None:
    run = tiny({"learning_rate": 1e30, "warmup_steps": 0})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    loop.advance(1)
    with pytest.raises(Diverged) as told:
        loop.evaluate()
    said = r"the validation loss after 1 step is nan: the output of \S+ is the first .* after the update of step 0"
    assert re.fullmatch(said, str(told.value))


def test_a_weight_that_the_last_update_left_not_finite_is_named(corpus: Prepared, tmp_path: Path) -> None:
    step = step_of(tiny(), corpus)
    loop = loop_of(tiny(), step, corpus, tmp_path)
    loop.advance(2)
    with torch.no_grad():
        dict(step.named_parameters())["blocks.1.mlp.up.weight"][0, 0] = float("inf")
    with pytest.raises(Diverged, match=r"after 2 steps is nan: the weight blocks\.1\.mlp\.up\.weight is .* of step 1"):
        loop.evaluate()


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"), True),
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("not enough memory"), False),
    ],
)
def test_out_of_memory_is_told_from_other_failures(error: Exception, verdict: bool) -> None:
    assert is_out_of_memory(error) is verdict


def test_torch_raises_what_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(3 * 2**40, 2**40)
    assert is_out_of_memory(caught.value), "more bytes than an address has"
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert what_was_refused(caught.value) == "a tensor of 1050000 TiB could not be allocated"
