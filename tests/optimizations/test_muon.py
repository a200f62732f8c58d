"""Muon: hidden matrices by an iteration, the rest by AdamW; fewer products are caught, divided matrices refused."""

import pytest

from assay.config import ModelConfig, Run, Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve
from support.runs import SHAPE, run_with
from support.steps import traced
from support.swapped import proof_of

CPU = Machine(processor="any", cores=4, memory_bytes=2**34)
MUON = Spec(name="muon")
RUN = run_with(MUON)


def test_an_iteration_cut_short_is_caught() -> None:
    trace = traced(RUN)
    evidence = proof_of(RUN, trace)
    assert evidence.observed == "240 products updated 16 hidden matrices; AdamW updated 36 other parameters"
    short = tuple(
        one.model_copy(update={"count": one.count // 2}) if one.phase == "update" else one for one in trace.operations
    )
    assert not proof_of(RUN, trace.model_copy(update={"operations": short})).verdict


@pytest.mark.parametrize("other", ["fully_sharded", "tensor_parallel", "zero_optimizer"])
def test_divided_matrices_are_refused(other: str) -> None:
    run = Run(model=SHAPE, ranks=2, device="cpu", optimizations=(MUON, Spec(name=other)))
    with pytest.raises(Conflict, match=f"{other} splits them"):
        check(run, CPU)


def test_a_mixture_is_refused() -> None:
    mixture = Run(model=ModelConfig(n_expert=4), optimizations=(MUON,))
    with pytest.raises(Conflict, match=r"leave out muon or model\.n_expert"):
        resolve(MUON).check(mixture, CPU)
