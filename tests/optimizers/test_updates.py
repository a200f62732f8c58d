"""What the ledger says of an update is what torch's allocator and the optimizer's state show."""

import pytest

from assay.config import TrainingConfig
from assay.cost.adam_updates import ForeachAdamW, FusedAdamW
from assay.cost.updates import AdamW, UpdateRule
from assay.optimizers.recipes import OptimizerRecipe, adamw
from optimizers.measured import PIECES, scratch, state_bytes

TRAINING = TrainingConfig()
SCALARS = 64
"""Bytes of numbers that torch wraps in tensors on the way."""

UPDATES: dict[str, tuple[OptimizerRecipe, UpdateRule]] = {
    "plain": (adamw(TRAINING), AdamW()),
    "foreach": (adamw(TRAINING, "foreach"), ForeachAdamW()),
    "fused": (adamw(TRAINING, "fused"), FusedAdamW()),
}


@pytest.mark.parametrize("name", UPDATES)
def test_state_is_predicted_to_the_byte(name: str) -> None:
    recipe, rule = UPDATES[name]
    assert sum(tensor.nbytes for tensor in rule.state(PIECES)) == state_bytes(recipe)


@pytest.mark.parametrize("name", UPDATES)
def test_scratch_is_predicted_and_the_instant_named(name: str) -> None:
    recipe, rule = UPDATES[name]
    measured = scratch(recipe)
    highest = max(rule.instants(PIECES), key=lambda instant: instant.nbytes)
    assert 0 <= measured.above_start_bytes - highest.nbytes <= SCALARS
    assert measured.instant == f"update: {highest.operation}"
