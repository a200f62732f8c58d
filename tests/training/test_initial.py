"""Weights that are nudged: each a neighbour of what it was, the same at every call, and no others."""

import torch

from assay.data import Prepared
from assay.model import initializer
from assay.training.build import baseline
from assay.training.initial import nudge_weights
from support.runs import tiny
from support.steps import CPU

NAME, SHAPE = "blocks.0.mlp.up.weight", torch.Size((40, 30))


def test_each_weight_is_the_next_number_up_or_down() -> None:
    initialize = initializer(tiny().model, 0)
    plain, moved = initialize(NAME, SHAPE), nudge_weights(initialize, 1)(NAME, SHAPE)
    up, down = (torch.nextafter(plain, torch.full_like(plain, end)) for end in (torch.inf, -torch.inf))
    assert bool(((moved == up) | (moved == down)).all())
    assert 0.4 < (moved == up).float().mean() < 0.6


def test_directions_depend_on_the_draw_and_on_nothing_else() -> None:
    initialize = initializer(tiny().model, 0)
    one, same, other = (nudge_weights(initialize, draw)(NAME, SHAPE) for draw in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_zero_stays() -> None:
    moved = nudge_weights(initializer(tiny().model, 0), 1)("blocks.0.mlp.up.bias", torch.Size((7,)))
    assert torch.equal(moved, torch.zeros(7))


def test_only_a_nudged_run_starts_from_other_weights(corpus: Prepared) -> None:
    run = tiny()
    weights = [
        baseline(run.model_copy(update={"nudge": nudge}), corpus, CPU).weights.initialize(NAME, SHAPE)
        for nudge in (0, 1)
    ]
    assert torch.equal(weights[0], initializer(run.model, run.seed)(NAME, SHAPE))
    assert not torch.equal(weights[0], weights[1])
