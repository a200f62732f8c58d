"""Adafactor: factors in the place of moments; a second moment that is whole is caught, divided matrices refused."""

import pytest

from assay.config import Run, Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check
from support.runs import SHAPE, run_with
from support.steps import traced
from support.swapped import proof_of
from support.traces import altered

CPU = Machine(processor="any", cores=4, memory_bytes=2**34)
ADAFACTOR = Spec(name="adafactor")
RUN = run_with(ADAFACTOR)


def test_a_second_moment_that_is_whole_is_caught() -> None:
    trace = traced(RUN)
    evidence = proof_of(RUN, trace)
    assert (
        evidence.observed == "52 of 52 parameters updated by row and column factors, "
        "15876 bytes of state for 213376 bytes of weights"
    )
    whole = altered(trace, whole_state_bytes={"float32": trace.memory.whole_parameter_bytes + 4 * 52})
    assert not proof_of(RUN, whole).verdict


@pytest.mark.parametrize("other", ["fully_sharded", "tensor_parallel", "zero_optimizer"])
def test_divided_matrices_are_refused(other: str) -> None:
    run = Run(model=SHAPE, ranks=2, device="cpu", optimizations=(ADAFACTOR, Spec(name=other)))
    with pytest.raises(Conflict, match=f"{other} splits them"):
        check(run, CPU)
