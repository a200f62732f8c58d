"""Fused AdamW: the same training in one kernel, and a proof that sees where there is none."""

import torch

from assay.config import Spec
from assay.optimizers.groups import decay_groups
from assay.optimizers.recipes import adamw
from assay.step.program import NamedParameters, OptimizerLike
from support.optimizers import after
from support.runs import run_with
from support.swapped import proof_of, traced_with

RUN = run_with(Spec(name="fused_adamw"))


def test_a_fused_optimizer_that_is_not_is_caught() -> None:
    def recipe(parameters: NamedParameters) -> OptimizerLike:
        groups = [{**group, "fused": None, "foreach": False} for group in decay_groups(parameters, 0.1)]
        return torch.optim.AdamW(groups, betas=(RUN.training.beta1, RUN.training.beta2), fused=True)

    evidence = proof_of(RUN, traced_with(recipe, RUN))
    assert evidence.observed == "0 fused kernels updated 0 of 52 parameters, 52 updates were not fused"
    assert not evidence.verdict


def test_lists_are_no_fused_kernel() -> None:
    assert not proof_of(RUN, traced_with(adamw(RUN.training, "foreach"), RUN)).verdict


def test_fused_lists_and_the_plain_loop_agree() -> None:
    plain, *others = (after(adamw(RUN.training, kernel)) for kernel in ("plain", "foreach", "fused"))
    for other in others:
        for name, weight in plain.items():
            torch.testing.assert_close(other[name], weight, rtol=1e-5, atol=1e-6)
