"""AdamW with narrow moments: float32 state is caught, also after a checkpoint, and moments that stand still refused."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest

from assay.config import Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve
from assay.optimizations.adamw_bf16_state.step import NarrowAdamW
from assay.optimizers.recipes import decay_groups, sgd
from assay.step.program import NamedParameters, OptimizerLike
from support.runs import run_with
from support.swapped import proof_of, traced_with

RUN = run_with(Spec(name="adamw_bf16_state"))


class Widened(NarrowAdamW):
    """What a checkpoint that widens leaves behind."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for entries in self.state.values():
            entries.update({key: entries[key].float() for key in ("exp_avg", "exp_avg_sq")})


def test_state_that_became_float32_is_caught() -> None:
    def recipe(parameters: NamedParameters) -> OptimizerLike:
        return Widened(decay_groups(parameters, 0.1), 1e-3, (0.9, 0.99), 1e-8)

    evidence = proof_of(RUN, traced_with(recipe, RUN))
    assert evidence.observed == "426752 bytes of two moments for 213376 bytes of weights"
    assert not evidence.verdict


def test_one_wide_moment_is_caught() -> None:
    assert not proof_of(RUN, traced_with(sgd(RUN.training, 0.9, nesterov=False), RUN)).verdict


@pytest.mark.parametrize(
    ("name", "says"), [("bf16_full", "already keeps optimizer state in 16 bits"), ("fp16_full", "optimizer")]
)
def test_beside_what_keeps_its_state_in_16_bits_it_is_refused(name: str, says: str) -> None:
    machine = Machine(processor="any", cores=2, memory_bytes=2**34)
    for specs in permutations((Spec(name=name), Spec(name="adamw_bf16_state"))):
        with pytest.raises(Conflict, match=says):
            check(run_with(*specs), machine)


@pytest.mark.parametrize("change", [{"beta2": 0.999}, {"beta1": 0.997}])
def test_moments_that_could_not_decay_are_refused(change: Mapping[str, float]) -> None:
    run = RUN.model_copy(update={"training": RUN.training.model_copy(update=change)})
    with pytest.raises(Conflict, match=r"below 0.996"):
        resolve(Spec(name="adamw_bf16_state")).check(run, Machine(processor="any", cores=2, memory_bytes=2**34))
