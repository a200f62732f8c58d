"""Lion: SGD, which keeps as much, does not pass for it."""

from assay.config import Spec
from assay.optimizers.recipes import sgd
from support.runs import run_with
from support.steps import traced
from support.swapped import proof_of, traced_with

RUN = run_with(Spec(name="lion"))


def test_every_parameter_steps_along_signs() -> None:
    evidence = proof_of(RUN, traced(RUN))
    assert evidence.observed.startswith("52 of 52 parameters updated by signs, 213376 bytes of state for 213376")


def test_an_optimizer_that_keeps_as_much_is_caught() -> None:
    assert not proof_of(RUN, traced_with(sgd(RUN.training, 0.9, nesterov=False), RUN)).verdict
