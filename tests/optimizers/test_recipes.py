"""Recipes of optimizers: their groups, kernels and learning rates, and the steps of Lion, Muon and NorMuon."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import nn

from assay.config import Spec, TrainingConfig
from assay.errors import UsageError
from assay.optimizations import optimizations_of
from assay.optimizers.recipes import (
    OptimizerRecipe,
    adafactor,
    adamw,
    at_rate,
    by_mesh,
    cautious,
    decay_groups,
    lion,
    muon,
    normuon,
)
from assay.training.build import baseline
from support.optimizers import SHAPES, after, made, update
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


def test_muon_is_torchs_bit_for_bit() -> None:
    (ours, mine), (_, theirs) = made(muon(TrainingConfig(learning_rate=0.01), 0.9)), made(adamw(TRAINING))
    hidden = [one for name, one in theirs if name in HIDDEN]
    torchs = torch.optim.Muon(hidden, lr=0.01, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    for index in range(3):
        update(ours, mine, index)
        update(torchs, theirs, index)
    assert all(torch.equal(one, dict(theirs)[name]) for name, one in mine if name in HIDDEN)


def test_rows_of_normuon_have_one_size_and_the_whole_has_adamws() -> None:
    optimizer, named = made(normuon(TRAINING, 0.95, 0.95, 1e-10))
    before = {name: one.detach().clone() for name, one in named}
    update(optimizer, named, 0)
    for name, one in named:
        if name in HIDDEN:
            step = (before[name] - one.detach()) / TRAINING.learning_rate
            assert step.norm() == pytest.approx(0.2 * step.numel() ** 0.5, rel=1e-3)
            rows = step.norm(dim=1)
            assert rows.max() / rows.min() == pytest.approx(1.0, abs=1e-3)  # the first mean square is the row's own
            assert optimizer.state[one]["second_momentum_buffer"].shape == (one.shape[0], 1)


def test_normuon_survives_rows_and_matrices_without_gradients() -> None:
    weight = nn.Parameter(torch.randn(8, 4))
    optimizer = normuon(TRAINING, 0.95, 0.95, 1e-10)([("blocks.0.w", weight)])
    before = weight.detach().clone()
    for gradient in (torch.zeros(8, 4), torch.cat([torch.zeros(4, 4), torch.randn(4, 4)])):
        weight.grad = gradient
        optimizer.step()
        assert torch.isfinite(weight).all()
    assert torch.equal(weight[:4], before[:4])
    assert not torch.equal(weight[4:], before[4:])


PEERS: dict[str, Callable[[TrainingConfig], OptimizerRecipe]] = {
    "adamw": adamw,
    "lion": lambda training: lion(training, (0.9, 0.99)),
    "muon": lambda training: muon(training, 0.95),
    "normuon": lambda training: normuon(training, 0.95, 0.95, 1e-10),
}


@pytest.mark.parametrize("name", PEERS)
def test_caution_spares_what_the_step_moves_away_from_zero(name: str) -> None:
    rate, decay = 0.01, 0.5
    still, decaying = (TrainingConfig(learning_rate=rate, weight_decay=one) for one in (0.0, decay))
    before = {key: one.detach().clone() for key, one in made(adamw(still))[1]}
    undecayed, found = after(PEERS[name](still), 1), after(cautious(PEERS[name](decaying)), 1)
    for key, start in before.items():
        update_of = start - undecayed[key]
        decayed = undecayed[key] - rate * decay * start * (start.ndim > 1)
        # An update below the rounding of its weight has a sign that nobody sees, so either result is right.
        nearest = torch.where(
            (found[key] - decayed).abs() < (found[key] - undecayed[key]).abs(), decayed, undecayed[key]
        )
        wanted = torch.where(update_of * start > 0, decayed, undecayed[key])
        unknown = update_of == 0
        assert unknown.float().mean() < 0.01
        torch.testing.assert_close(found[key], torch.where(unknown, nearest, wanted), rtol=1e-5, atol=1e-6)


def test_a_zero_update_decays_and_no_tiny_product_is_rounded_to_zero() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, 1e-30, 1e-30]]))
    optimizer = cautious(adamw(TrainingConfig(learning_rate=0.5, weight_decay=1.0, epsilon=1.0)))([("w", weight)])
    weight.grad = torch.tensor([[0.0, 1e-30, -1e-30]])
    optimizer.step()
    assert weight[0].tolist() == pytest.approx([0.5, 0.0, 1.5e-30], rel=1e-5, abs=1e-36)


def test_caution_without_decay_is_the_optimizer_itself() -> None:
    plain, careful = after(adamw(TRAINING)), after(cautious(adamw(TRAINING)))
    assert all(torch.equal(one, careful[name]) for name, one in plain.items())


def test_an_optimizer_whose_decay_is_unknown_is_refused() -> None:
    with pytest.raises(UsageError, match="does not know the decay of Adafactor"):
        made(cautious(adafactor(TRAINING)))
