"""Each slow rule against the optimizer that it stands for: torch's, and ours, over some updates in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.optimizers import recipes
from assay.optimizers.recipes import Lion, NorMuon, cautious
from assay.reference import rules

RATE, DECAY, UPDATES = 0.01, 0.1, 4
ADAMW = rules.AdamWRule(weight_decay=DECAY, beta1=0.9, beta2=0.95, epsilon=1e-8)


def _cautiously(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda groups: cautious(lambda parameters: make(parameters))(groups)


CASES: dict[str, tuple[rules.Rule, Callable[[Any], Any]]] = {
    "adamw": (
        ADAMW,
        lambda groups: torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8),
    ),
    "adam": (
        rules.AdamWRule(weight_decay=DECAY, beta1=0.8, beta2=0.99, epsilon=1e-6, coupled=True),
        lambda groups: torch.optim.Adam(groups, lr=RATE, betas=(0.8, 0.99), eps=1e-6),
    ),
    "sgd": (
        rules.SGDRule(weight_decay=DECAY, momentum=0.9, nesterov=False),
        lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9),
    ),
    "nesterov": (
        rules.SGDRule(weight_decay=DECAY, momentum=0.7, nesterov=True),
        lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.7, nesterov=True),
    ),
    "plain sgd": (
        rules.SGDRule(weight_decay=DECAY, momentum=0.0, nesterov=False),
        lambda groups: torch.optim.SGD(groups, lr=RATE),
    ),
    "adafactor": (rules.AdafactorRule(weight_decay=DECAY), lambda groups: torch.optim.Adafactor(groups, lr=RATE)),
    "lion": (
        rules.LionRule(weight_decay=DECAY, beta1=0.9, beta2=0.99),
        lambda groups: Lion(groups, lr=RATE, betas=(0.9, 0.99)),
    ),
    "cautious adamw": (
        rules.AdamWRule(weight_decay=DECAY, beta1=0.9, beta2=0.95, epsilon=1e-8, cautious=True),
        _cautiously(lambda groups: torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)),
    ),
    "cautious lion": (
        rules.LionRule(weight_decay=DECAY, beta1=0.9, beta2=0.99, cautious=True),
        _cautiously(lambda groups: Lion(groups, lr=RATE, betas=(0.9, 0.99))),
    ),
}


def _gradients(seed: int) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=dice).double(), torch.randn(5, generator=dice).double()


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_the_optimizer(name: str) -> None:
    rule, make = CASES[name]
    first = _gradients(0)
    matrix, vector = (nn.Parameter(one.clone()) for one in first)
    optimizer = make(
        [{"params": [matrix], "weight_decay": DECAY}, {"params": [vector], "weight_decay": 0.0}],
    )
    replayed, states = list(first), ({}, {})
    for seed in range(1, UPDATES + 1):
        matrix.grad, vector.grad = gradients = _gradients(seed)
        optimizer.step()
        replayed = [
            rule.update("any", weight, gradient, state, RATE)
            for weight, gradient, state in zip(replayed, gradients, states, strict=True)
        ]
        for weight, mine in zip((matrix, vector), replayed, strict=True):
            torch.testing.assert_close(mine, weight.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_a_replay_can_begin_in_the_middle(name: str) -> None:
    rule, make = CASES[name]
    weight = nn.Parameter(_gradients(0)[0])
    optimizer = make([{"params": [weight], "weight_decay": DECAY}])
    for seed in (1, 2):
        weight.grad = _gradients(seed)[0]
        optimizer.step()
    entries = {
        key: torch.as_tensor(value).clone() for key, value in optimizer.state[weight].items() if value is not None
    }
    before, state = weight.detach().clone(), rule.adopt(entries)
    weight.grad = _gradients(3)[0]
    optimizer.step()
    replayed = rule.update("any", before, weight.grad, state, RATE)
    torch.testing.assert_close(replayed, weight.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("careful", [False, True])
def test_normuon_divides_rows_by_their_own_mean_squares(careful: bool) -> None:
    own = {"momentum": 0.95, "beta2": 0.8, "eps": 1e-10}
    rule = rules.NorMuonRule(
        weight_decay=DECAY, momentum=0.95, beta2=0.8, epsilon=1e-10, others=ADAMW, cautious=careful
    )
    weight = nn.Parameter(_gradients(0)[0].float())
    optimizer = NorMuon([weight], lr=RATE, weight_decay=DECAY, **own)
    optimizer.cautious = careful
    replayed, state = weight.detach().clone(), rules.State()
    for seed in (1, 2, 3):
        weight.grad = _gradients(seed)[0].float()
        optimizer.step()
        replayed = rule.update("blocks.0.mlp.up.weight", replayed, weight.grad, state, RATE)
    torch.testing.assert_close(replayed.float(), weight.detach(), rtol=0.02, atol=2e-3)
    adopted = rule.adopt(optimizer.state[weight])
    torch.testing.assert_close(adopted["v"], state["v"], rtol=0.05, atol=1e-4)
    assert rule.options("blocks.0.mlp.up.weight", weight) == {**own, "weight_decay": DECAY}
    assert "eps" not in rule.options("embedding.token.weight", weight)


def test_muon_orthogonalizes_hidden_matrices_and_leaves_the_rest_to_adamw() -> None:
    rule = rules.MuonRule(weight_decay=DECAY, momentum=0.95, others=ADAMW)
    weight = nn.Parameter(_gradients(0)[0].float())
    optimizer = torch.optim.Muon([weight], lr=RATE, weight_decay=DECAY, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    replayed, state = weight.detach().clone(), rules.State()
    for seed in (1, 2, 3):
        weight.grad = _gradients(seed)[0].float()
        optimizer.step()
        replayed = rule.update("blocks.0.mlp.up.weight", replayed, weight.grad, state, RATE)
    torch.testing.assert_close(replayed.float(), weight.detach(), rtol=0.02, atol=2e-3)
    plain = rule.update("embedding.token.weight", weight.detach(), weight.grad, rules.State(), RATE)
    assert torch.equal(plain, ADAMW.update("", weight.detach(), weight.grad, rules.State(), RATE))


@pytest.mark.parametrize("kind", ["muon", "normuon"])
@pytest.mark.parametrize("width", [8, 80])
def test_joined_matrices_are_updated_as_each_of_them_alone(kind: str, width: int) -> None:
    """Small ones are orthogonalized beside wider ones, and large ones beside those of their size."""
    own = {"weight_decay": DECAY, "momentum": 0.95, "others": ADAMW}
    rule = rules.MuonRule(**own) if kind == "muon" else rules.NorMuonRule(**own, beta2=0.8, epsilon=1e-10)
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width), (width, width)]
    dice, name = torch.Generator().manual_seed(0), "blocks.0.mlp.up.weight"
    weights, *gradients = ([torch.randn(*shape, generator=dice) for shape in shapes] for _ in range(3))
    joined, states, whole = rule.joined(shapes), [rules.State() for _ in shapes], rules.State()
    row = _end_to_end(weights)
    for step in gradients:
        updated = joined.update(name, row, _end_to_end(step), whole, RATE)
        alone = [
            rule.update(name, weight, gradient, state, RATE)
            for weight, gradient, state in zip(weights, step, states, strict=True)
        ]
        torch.testing.assert_close(updated, _end_to_end(alone), rtol=0.0, atol=0.02 * RATE)
        row, weights = updated.float(), [one.float() for one in alone]
    torch.testing.assert_close(whole["b"], _end_to_end([one["b"] for one in states]))
    if kind == "normuon":
        torch.testing.assert_close(whole["v"], torch.cat([one["v"] for one in states]), rtol=0.02, atol=0.0)


def _end_to_end(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([one.flatten() for one in tensors])[None]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [8, 48])
def test_muon_of_narrow_weights_rounds_what_it_orthogonalizes(
    dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all of a gradient lies in one direction. The method raises the others, with all their rounding.

    Both orthogonalize with the rule's products, because those of a processor may be rounded in another order.
    """
    rule = rules.MuonRule(weight_decay=DECAY, momentum=0.95, others=ADAMW)
    monkeypatch.setattr(recipes, "_zeropower_via_newtonschulz", lambda one, *_: rule._orthogonal([one])[0].bfloat16())
    dice = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.zeros(rows, 24, dtype=dtype))
    optimizer = recipes.Muon([weight], lr=1.0, weight_decay=DECAY, momentum=0.95)
    state = rules.State()
    for _ in range(3):
        with torch.no_grad():
            weight.zero_()
        left, right, rest = (torch.randn(*shape, generator=dice) for shape in ((rows, 1), (1, 24), (rows, 24)))
        weight.grad = (left @ right + 1e-3 * rest).to(dtype)
        optimizer.step()
        replayed = rule.update("blocks.0.mlp.up.weight", torch.zeros_like(weight), weight.grad, state, 1.0)
        assert torch.equal(state["b"], optimizer.state[weight]["momentum_buffer"].double())
        off = (replayed - weight.detach().double()).norm() / replayed.norm()
        assert off < 3 * torch.finfo(dtype).eps
