"""Kernels of the ledger's operations, against the operators that torch dispatched for the same steps.

The counts are those of torch 2.11.0+cu130 on an absent H200, forward and backward, for GPT-2 124M on 8 sequences.
"""

from collections import Counter

import pytest

from assay import api
from assay.cost import Cost
from assay.estimator import estimate
from assay.estimator.timing.gpu_step import gradients
from assay.estimator.timing.launched_kernels import forward
from assay.hardware.devices import absent_machine
from assay.hardware.measured_kernels import BATCHED, MIXED_ADD, NARROWING, NORM, PLAIN, PRODUCT, WIDENING, Kernel

PLAIN_STEP = (
    # clone 48, mul 12, add 25, embedding 1, nll_loss 1
    {PRODUCT: 49, BATCHED: 24, NORM: 25, "softmax": 12, "masked_fill": 12, "gelu": 12, PLAIN: 87},
    # sum 49, gelu 12, mul 12, clone 12, stack 12, add 25
    {PRODUCT: 98, BATCHED: 48, NORM: 25, "softmax": 12, "masked_fill": 12, "embedding": 1, PLAIN: 122},
)
HALF_STEP = (
    {PRODUCT: 49, "attention flash": 12, NORM: 25, "gelu": 12, MIXED_ADD: 24},
    {PRODUCT: 98, "attention flash": 12, NORM: 25, "embedding": 1},
)
CASTS = (123, 147)
"""Casts without the copies of ids and targets from the host."""


def ledger(*stack: str, **over: object) -> Cost:
    settings = [f"{key}={value}" for key, value in over.items()]
    return estimate(api.configure("gpt2-124m", ["device=cuda", *settings], *stack), absent_machine("h200")).cost


def launched(cost: Cost) -> tuple[Counter[str], Counter[str]]:
    known: set[str] = set()
    back = (one for at in reversed(range(len(cost.tape))) for one in gradients(cost, at, known))
    return Counter(k.kind for one in cost.tape for k in forward(one, cost)), Counter(k.kind for k in back)


def test_a_plain_step_launches_the_kernels_that_torch_dispatched() -> None:
    for found, dispatched in zip(launched(ledger()), PLAIN_STEP, strict=True):
        assert {kind: found[kind] for kind in dispatched} == dispatched


def test_a_step_in_16_bits_launches_the_kernels_that_torch_dispatched() -> None:
    cost = ledger("bf16_mixed+sdpa_attention:backend=flash")
    for found, dispatched, casts in zip(launched(cost), HALF_STEP, CASTS, strict=True):
        assert {kind: found[kind] for kind in dispatched} == dispatched
        assert found[WIDENING] + found[NARROWING] == casts


def test_products_of_all_passes_do_the_ledgers_work() -> None:
    cost = ledger("bf16_mixed")
    known: set[str] = set()
    every = [kernel for one in cost.tape for kernel in forward(one, cost)]
    every += [one for at in reversed(range(len(cost.tape))) for one in gradients(cost, at, known)]
    assert sum(one.flops for one in every) == sum(sum(one.flops[:2]) for one in cost.tape)


def test_a_loss_in_chunks_has_a_product_for_each_and_three_in_backward() -> None:
    there, back = launched(ledger("chunked_cross_entropy:chunks=8"))
    assert (there[PRODUCT], back[PRODUCT]) == (48 + 8, 96 + 24)


@pytest.mark.parametrize(("stack", "columns"), [("bf16_mixed", 50257), ("bf16_mixed+compile", 50264)])
def test_a_compiler_pads_products_whose_sides_are_not_aligned(stack: str, columns: int) -> None:
    cost = ledger(stack)
    shapes = {kernel.shape[-1] for one in cost.tape for kernel in forward(one, cost) if kernel.kind == PRODUCT}
    assert max(shapes) == columns


def test_compiled_loops_move_fewer_bytes() -> None:
    def moved(cost: Cost) -> float:
        loops: list[Kernel] = [one for each in cost.tape for one in forward(each, cost) if one.kind != PRODUCT]
        return sum(one.nbytes for one in loops)

    assert moved(ledger("bf16_mixed+compile")) < 0.7 * moved(ledger("bf16_mixed"))
