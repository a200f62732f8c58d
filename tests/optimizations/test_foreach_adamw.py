"""AdamW over lists: a proof that neither the plain loop nor the fused kernel passes."""

import pytest

from assay.config import Spec
from assay.optimizers.recipes import Kernel, adamw
from support.runs import run_with
from support.swapped import proof_of, traced_with

RUN = run_with(Spec(name="foreach_adamw"))


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_other_kernels_are_caught(kernel: Kernel) -> None:
    assert not proof_of(RUN, traced_with(adamw(RUN.training, kernel), RUN)).verdict


def test_both_groups_go_through_in_lists() -> None:
    evidence = proof_of(RUN, traced_with(adamw(RUN.training, "foreach"), RUN))
    assert evidence.observed == "2 list updates for 52 of 52 parameters, 0 updates in other kernels"
