"""The slow rules of Muon and NorMuon against torch's optimizer and ours, and joined matrices against single ones."""

import pytest
import torch
from torch import Tensor, nn

from assay.optimizers import recipes
from assay.optimizers.recipes import NorMuon
from assay.reference.matrix_rules import MuonRule, NorMuonRule
from assay.reference.rules import AdamWRule, State

RATE, DECAY = 0.01, 0.1
HIDDEN = "blocks.0.mlp.up.weight"
ADAMW = AdamWRule(weight_decay=DECAY, beta1=0.9, beta2=0.95, epsilon=1e-8)


def _gradient(seed: int) -> Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _after_three_updates(
    rule: MuonRule, weight: nn.Parameter, optimizer: torch.optim.Optimizer
) -> tuple[Tensor, State]:
    """Update a weight by its optimizer, and return the replayed weight and state."""
    replayed, state = weight.detach().clone(), State()
    for seed in (1, 2, 3):
        weight.grad = _gradient(seed).float()
        optimizer.step()
        replayed = rule.update(HIDDEN, replayed, weight.grad, state, RATE)
    return replayed, state


@pytest.mark.parametrize("careful", [False, True])
def test_normuon_divides_rows_by_their_own_mean_squares(careful: bool) -> None:
    own = {"momentum": 0.95, "beta2": 0.8, "eps": 1e-10}
    rule = NorMuonRule(weight_decay=DECAY, momentum=0.95, beta2=0.8, epsilon=1e-10, others=ADAMW, cautious=careful)
    weight = nn.Parameter(_gradient(0).float())
    optimizer = NorMuon([weight], lr=RATE, weight_decay=DECAY, **own)
    optimizer.cautious = careful
    replayed, state = _after_three_updates(rule, weight, optimizer)
    torch.testing.assert_close(replayed.float(), weight.detach(), rtol=0.02, atol=2e-3)
    adopted = rule.adopt(optimizer.state[weight])
    torch.testing.assert_close(adopted["v"], state["v"], rtol=0.05, atol=1e-4)
    assert rule.options(HIDDEN, weight) == {**own, "weight_decay": DECAY}
    assert "eps" not in rule.options("embedding.token.weight", weight)


def test_muon_orthogonalizes_hidden_matrices_and_leaves_the_rest_to_adamw() -> None:
    rule = MuonRule(weight_decay=DECAY, momentum=0.95, others=ADAMW)
    weight = nn.Parameter(_gradient(0).float())
    optimizer = torch.optim.Muon([weight], lr=RATE, weight_decay=DECAY, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    replayed, _ = _after_three_updates(rule, weight, optimizer)
    torch.testing.assert_close(replayed.float(), weight.detach(), rtol=0.02, atol=2e-3)
    plain = rule.update("embedding.token.weight", weight.detach(), weight.grad, State(), RATE)
    assert torch.equal(plain, ADAMW.update("", weight.detach(), weight.grad, State(), RATE))


@pytest.mark.parametrize("kind", ["muon", "normuon"])
@pytest.mark.parametrize("width", [8, 80])
def test_joined_matrices_are_updated_as_each_of_them_alone(kind: str, width: int) -> None:
    """Small ones are orthogonalized beside wider ones, and large ones beside those of their size."""
    own = {"weight_decay": DECAY, "momentum": 0.95, "others": ADAMW}
    rule = MuonRule(**own) if kind == "muon" else NorMuonRule(**own, beta2=0.8, epsilon=1e-10)
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width), (width, width)]
    dice = torch.Generator().manual_seed(0)
    weights, *gradients = ([torch.randn(*shape, generator=dice) for shape in shapes] for _ in range(3))
    joined, states, whole = rule.joined(shapes), [State() for _ in shapes], State()
    row = _end_to_end(weights)
    for step in gradients:
        updated = joined.update(HIDDEN, row, _end_to_end(step), whole, RATE)
        alone = [
            rule.update(HIDDEN, weight, gradient, state, RATE)
            for weight, gradient, state in zip(weights, step, states, strict=True)
        ]
        torch.testing.assert_close(updated, _end_to_end(alone), rtol=0.0, atol=0.02 * RATE)
        row, weights = updated.float(), [one.float() for one in alone]
    torch.testing.assert_close(whole["b"], _end_to_end([one["b"] for one in states]))
    if kind == "normuon":
        torch.testing.assert_close(whole["v"], torch.cat([one["v"] for one in states]), rtol=0.02, atol=0.0)


def _end_to_end(tensors: list[Tensor]) -> Tensor:
    return torch.cat([one.flatten() for one in tensors])[None]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [8, 48])
def test_muon_of_narrow_weights_rounds_what_it_orthogonalizes(
    dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all of a gradient lies in one direction. The method raises the others, with all their rounding.

    Both orthogonalize with the rule's products, because those of a processor may be rounded in another order.
    """
    rule = MuonRule(weight_decay=DECAY, momentum=0.95, others=ADAMW)
    monkeypatch.setattr(recipes, "_zeropower_via_newtonschulz", lambda one, *_: rule._orthogonal([one])[0].bfloat16())
    dice = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.zeros(rows, 24, dtype=dtype))
    optimizer = recipes.Muon([weight], lr=1.0, weight_decay=DECAY, momentum=0.95)
    state = State()
    for _ in range(3):
        with torch.no_grad():
            weight.zero_()
        left, right, rest = (torch.randn(*shape, generator=dice) for shape in ((rows, 1), (1, 24), (rows, 24)))
        weight.grad = (left @ right + 1e-3 * rest).to(dtype)
        optimizer.step()
        replayed = rule.update(HIDDEN, torch.zeros_like(weight), weight.grad, state, 1.0)
        assert torch.equal(state["b"], optimizer.state[weight]["momentum_buffer"].double())
        off = (replayed - weight.detach().double()).norm() / replayed.norm()
        assert off < 3 * torch.finfo(dtype).eps
