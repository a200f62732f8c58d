"""What the ledger says of an update is what torch's allocator and the optimizer's state show."""

import pytest
import torch
from torch import nn

from assay.config import TrainingConfig
from assay.cost import Tensor
from assay.cost.matrix_updates import AdafactorUpdate, MuonUpdate, NorMuonUpdate
from assay.cost.update_rules import (
    AdamUpdate,
    AdamWUpdate,
    ForeachAdamWUpdate,
    FusedAdamWUpdate,
    LionUpdate,
    NarrowAdamWUpdate,
    SGDUpdate,
    UpdateRule,
)
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.optimizations.adamw_bf16_state.step import narrow_adamw
from assay.optimizers.recipes import OptimizerRecipe, adafactor, adam, adamw, cautious, lion, muon, normuon, sgd
from support.optimizers import PIECES, scratch, state_bytes

TRAINING = TrainingConfig()
SCALARS = 64
"""Bytes of numbers that torch wraps in tensors on the way."""

UPDATES: dict[str, tuple[OptimizerRecipe, UpdateRule]] = {
    "plain": (adamw(TRAINING), AdamWUpdate()),
    "foreach": (adamw(TRAINING, "foreach"), ForeachAdamWUpdate()),
    "fused": (adamw(TRAINING, "fused"), FusedAdamWUpdate()),
    "adam": (adam(TRAINING), AdamUpdate()),
    "sgd": (sgd(TRAINING, 0.9, nesterov=False), SGDUpdate(momentum=True, nesterov=False, decays=True)),
    "nesterov": (sgd(TRAINING, 0.9, nesterov=True), SGDUpdate(momentum=True, nesterov=True, decays=True)),
    "no momentum": (sgd(TRAINING, 0.0, nesterov=False), SGDUpdate(momentum=False, nesterov=False, decays=True)),
    "lion": (lion(TRAINING, (0.9, 0.99)), LionUpdate()),
    "narrow": (narrow_adamw(TRAINING), NarrowAdamWUpdate()),
    "muon": (muon(TRAINING, 0.95), MuonUpdate()),
    "normuon": (normuon(TRAINING, 0.95, 0.95, 1e-10), NorMuonUpdate()),
    "cautious": (cautious(adamw(TRAINING)), AdamWUpdate(cautious=True)),
    "cautious lion": (cautious(lion(TRAINING, (0.9, 0.99))), LionUpdate(cautious=True)),
    "cautious muon": (cautious(muon(TRAINING, 0.95)), MuonUpdate(cautious=True)),
    "cautious normuon": (cautious(normuon(TRAINING, 0.95, 0.95, 1e-10)), NorMuonUpdate(cautious=True)),
    "adafactor": (adafactor(TRAINING), AdafactorUpdate()),
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


@pytest.mark.parametrize("shape", [(288, 96), (96, 384), (256, 256)])
@pytest.mark.parametrize("name", ["muon", "normuon", "cautious muon", "cautious normuon"])
def test_the_scratch_of_an_orthogonal_step(name: str, shape: tuple[int, int]) -> None:
    recipe, rule = UPDATES[name]
    weight = nn.Parameter(torch.randn(shape))
    weight.grad = torch.randn(shape)
    optimizer = recipe([("blocks.0.w", weight)])
    optimizer.step()
    measured = tensor_peak(lambda: optimizer.step(), "cpu").above_start_bytes
    (instant,) = rule.instants({"blocks.0.w": Tensor("blocks.0.w", shape, batched=False)})
    assert 0 <= measured - instant.nbytes <= SCALARS
