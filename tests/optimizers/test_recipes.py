"""Recipes of optimizers: their groups, kernels and learning rates, and the steps of Lion and Muon."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from assay.config import Spec, TrainingConfig
from assay.optimizations import optimizations_of
from assay.optimizers.recipes import adamw, at_rate, by_mesh, decay_groups, lion, muon
from assay.training.build import baseline
from support.optimizers import SHAPES, made, update
from support.random_data import RandomData
from support.runs import run_with
from support.steps import build_step


def test_matrices_decay_and_vectors_do_not() -> None:
    step = build_step(run_with())
    names = {parameter: name for name, parameter in step.named_parameters()}
    decayed, spared = decay_groups(step.named_parameters(), 0.1)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert {names[p] for p in spared["params"]} == {n for n in names.values() if n.endswith("bias") or "norm" in n}
    assert {names[p] for p in decayed["params"]} >= {"embedding.token.weight", "blocks.0.mlp.up.weight"}
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_a_group_that_would_be_empty_is_left_out() -> None:
    assert len(decay_groups([("w", nn.Parameter(torch.ones(2, 2)))], 0.1)) == 1


def test_groups_are_cut_by_where_their_tensors_are_spread() -> None:
    plain, spread = (nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    spread.device_mesh = "a mesh"  # type: ignore[attr-defined]
    cut = by_mesh([{"params": [plain, spread], "weight_decay": 0.1}, {"params": [plain], "weight_decay": 0.0}])
    assert [(group["params"], group["weight_decay"]) for group in cut] == [
        ([plain], 0.1),
        ([spread], 0.1),
        ([plain], 0.0),
    ]


def test_adamw_follows_its_definition() -> None:
    training = TrainingConfig(learning_rate=0.01, weight_decay=0.5, beta1=0.8, beta2=0.9, epsilon=1e-6)
    weight = nn.Parameter(torch.tensor([[1.0, -2.0]], dtype=torch.float64))
    optimizer = adamw(training)([("weight", weight)])
    expected, m, v = weight.detach().clone(), torch.zeros(1, 2).double(), torch.zeros(1, 2).double()
    for t in range(1, 4):
        gradient = torch.tensor([[0.3 * t, -0.1]], dtype=torch.float64)
        weight.grad = gradient.clone()
        optimizer.step()
        m, v = 0.8 * m + 0.2 * gradient, 0.9 * v + 0.1 * gradient**2
        expected = expected * (1 - 0.01 * 0.5)
        expected = expected - 0.01 * (m / (1 - 0.8**t)) / ((v / (1 - 0.9**t)).sqrt() + 1e-6)
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-12, atol=0)


def test_the_baseline_updates_one_tensor_after_the_other() -> None:
    groups = build_step(run_with()).optimizer.param_groups
    assert all(group["foreach"] is False and group["fused"] is False for group in groups)


def test_warm_up_cosine_and_minimum_are_the_runs_times_a_factor() -> None:
    run = run_with(Spec(name="sgd", fields={"learning_rate": 0.05}))
    program = baseline(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    (sgd,) = optimizations_of(run)
    own = sgd.apply(program, run)
    rates = [program.schedule(step) for step in range(8)]
    assert max(rates) == run.training.learning_rate
    assert [own.schedule(step) for step in range(8)] == pytest.approx([50 * rate for rate in rates], rel=1e-12)


def test_the_decay_of_a_step_stays() -> None:
    plain = TrainingConfig(learning_rate=1e-3, min_learning_rate=1e-4, weight_decay=0.1)
    own = at_rate(plain, 1e-4)
    assert (own.learning_rate, own.min_learning_rate, own.weight_decay) == pytest.approx((1e-4, 1e-5, 1.0))


def test_lion_follows_its_definition() -> None:
    training = TrainingConfig(learning_rate=0.01, min_learning_rate=0.001, weight_decay=0.5)
    weight = nn.Parameter(torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64))
    optimizer = lion(training, (0.8, 0.6))([("weight", weight)])
    expected, m = weight.detach().clone(), torch.zeros(1, 3).double()
    for t in range(1, 6):
        gradient = torch.tensor([[0.3 * (-1) ** t, -0.1 * t, 0.2 - 0.1 * t]], dtype=torch.float64)
        weight.grad = gradient.clone()
        optimizer.step()
        expected = expected - 0.01 * (torch.sign(0.8 * m + 0.2 * gradient) + 0.5 * expected)
        m = 0.6 * m + 0.4 * gradient
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-12, atol=0)


def test_a_parameter_without_a_gradient_stays() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = lion(TrainingConfig(), (0.9, 0.99))([("weight", weight)])
    optimizer.step()
    assert torch.equal(weight.detach(), torch.ones(2, 2))
    assert not optimizer.state


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
