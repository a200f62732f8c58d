"""None"""

import pytest
import torch
from torch import nn

from assay.config import Spec, TrainingConfig
from assay.optimizations import optimizations_of
from assay.optimizers.recipes import adamw, at_rate, by_mesh, decay_groups
from assay.training.build import baseline
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
