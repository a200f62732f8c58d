"""Each slow rule against the optimizer that it stands for: torch's, and ours, over some updates in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.optimizers.recipes import Lion, cautious
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
