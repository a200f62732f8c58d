from copy import deepcopy

import torch
from torch import nn

from assay.config import TrainingConfig
from assay.optimizers.muon import muon
from assay.optimizers.recipes import adamw
from support.optimizers import SHAPES, made, update

TRAINING = TrainingConfig(learning_rate=0.01, weight_decay=0.0)
HIDDEN = {name for name, shape in SHAPES.items() if name.startswith("blocks.") and len(shape) == 2}


def test_hidden_matrices_step_along_an_orthogonal_direction_of_adamws_size() -> None:
    optimizer, named = made(muon(TRAINING, 0.95))
    before = {name: one.detach().clone() for name, one in named}
    update(optimizer, named, 0)
    for name, one in named:
        if name in HIDDEN:
            step = (before[name] - one.detach()) / (TRAINING.learning_rate * 0.2 * max(one.shape) ** 0.5)
            singular = torch.linalg.svdvals(step)
            assert 0.5 < singular.min() < singular.max() < 1.5


def test_everything_else_is_adamws() -> None:
    (joined, named), (plain, others) = made(muon(TRAINING, 0.95)), made(adamw(TRAINING))
    for index in range(3):
        update(joined, named, index)
        update(plain, others, index)
    for (name, one), (_, other) in zip(named, others, strict=True):
        assert torch.equal(one, other) == (name not in HIDDEN)


def test_both_parts_are_one_to_a_checkpoint() -> None:
    (first, ours), (second, mine) = made(muon(TRAINING, 0.95)), made(muon(TRAINING, 0.95))
    for index in range(2):
        update(first, ours, index)
    state = first.state_dict()
    assert list(state["state"]) == list(range(len(SHAPES)))
    assert sorted(n for group in state["param_groups"] for n in group["params"]) == list(range(len(SHAPES)))
    with torch.no_grad():
        for (_, one), (_, other) in zip(ours, mine, strict=True):
            other.copy_(one)
    second.load_state_dict(deepcopy(state))
    for group in (*first.param_groups, *second.param_groups):
        group["lr"] = 0.003
    update(first, ours, 2)
    update(second, mine, 2)
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(ours, mine, strict=True))


def test_hidden_matrices_alone_are_enough() -> None:
    weight = nn.Parameter(torch.randn(4, 8))
    optimizer = muon(TRAINING, 0.95)([("blocks.0.w", weight)])
    weight.grad = torch.randn(4, 8)
    optimizer.step()
    assert len(optimizer.state) == 1
