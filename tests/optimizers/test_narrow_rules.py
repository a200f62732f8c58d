"""Weights in bfloat16: each of torch's kernels of AdamW rounds in its own places, and has a rule of its own."""

import pytest
import torch

from assay.config import Spec
from assay.optimizations import expected_of
from assay.optimizers.recipes import Kernel, adamw
from assay.reference.rules import Rule, State
from support.runs import run_with

STACKS: dict[Kernel, tuple[str, ...]] = {
    "plain": ("bf16_full",),
    "foreach": ("bf16_full", "foreach_adamw"),
    "fused": ("bf16_full", "fused_adamw"),
}


def rule_of(kernel: Kernel) -> Rule:
    return expected_of(run_with(*(Spec(name=name) for name in STACKS[kernel]))).rule


@pytest.mark.parametrize("kernel", STACKS)
def test_a_kernel_rounds_as_its_rule_says(kernel: Kernel) -> None:
    dice, rate = torch.Generator().manual_seed(0), 0.02
    weight = 0.1 * torch.randn(64, 64, generator=dice)
    parameter = torch.nn.Parameter(weight.bfloat16())
    optimizer = adamw(run_with().training, kernel)([("weight", parameter)])
    rules = {name: rule_of(name) for name in STACKS}
    states: dict[str, State] = {name: {} for name in STACKS}
    for _ in range(20):
        before = parameter.detach().clone()
        parameter.grad = (1e-2 * torch.randn(64, 64, generator=dice)).bfloat16()
        gradient = parameter.grad.clone()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        replayed = {name: rule.update("weight", before, gradient, states[name], rate) for name, rule in rules.items()}
    equal = {name: float((one == parameter).float().mean()) for name, one in replayed.items()}
    assert equal.pop(kernel) > 0.99
    assert all(share < 0.9 for share in equal.values()), equal
