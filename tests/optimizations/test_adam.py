"""Adam: decay inside the gradient; AdamW, and Adam that does not decay, are caught or refused."""

import pytest

from assay.config import Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, resolve
from assay.optimizers.recipes import adam
from support.runs import run_with
from support.swapped import proof_of, traced_with

RUN = run_with(Spec(name="adam"))


def test_every_matrix_decays_through_its_gradient() -> None:
    evidence = proof_of(RUN, traced_with(adam(RUN.training), RUN))
    assert evidence.observed == "weight decay added to 18 of 52 gradients, and applied to 0 weights directly"


def test_adam_that_does_not_decay_is_caught() -> None:
    still = RUN.training.model_copy(update={"weight_decay": 0.0})
    assert not proof_of(RUN, traced_with(adam(still), RUN)).verdict


def test_a_run_in_which_nothing_decays_is_refused() -> None:
    still = RUN.model_copy(update={"training": RUN.training.model_copy(update={"weight_decay": 0.0})})
    with pytest.raises(Conflict, match=r"set training.weight_decay above 0"):
        resolve(Spec(name="adam")).check(still, Machine(processor="any", cores=2, memory_bytes=2**34))
