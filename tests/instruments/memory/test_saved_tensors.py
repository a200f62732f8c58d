"""Saved tensors: what lives at the same time, and never one storage taken for another."""

import torch

from assay.instruments.memory.saved_tensors import SavedTensors
from assay.instruments.memory.storages import identity

SIZE = 1000
BYTES = 4 * SIZE


def test_a_reused_address_is_not_the_same_storage_and_not_another_one_more() -> None:
    x = torch.ones(SIZE, requires_grad=True)
    with SavedTensors(set(), lambda storage: "any") as saved:
        for _ in range(5):
            x.exp().sum().backward()  # each keeps its result, freed before the next is made at the same address
    assert saved.highest == {"any float32": BYTES}


def test_tensors_that_live_together_add_up() -> None:
    x = torch.ones(SIZE, requires_grad=True)
    with SavedTensors(set(), lambda storage: "any") as saved:
        losses = [x.exp().sum() for _ in range(3)]
    assert saved.highest == {"any float32": 3 * BYTES}
    for loss in losses:
        loss.backward()
    assert saved._total == 0


def test_a_dead_graph_keeps_nothing() -> None:
    x = torch.ones(SIZE, requires_grad=True)
    with SavedTensors(set(), lambda storage: "any") as saved:
        x.exp().sum()
        x.exp().sum()
    assert saved.highest == {"any float32": BYTES}
    assert saved._total == 0


def test_views_count_their_whole_storage_once() -> None:
    x = torch.ones(SIZE, requires_grad=True)
    with SavedTensors(set(), lambda storage: "any") as saved:
        y = x * 1
        loss = (y[:10] * y[10:20]).sum() + (y[:5] ** 2).sum()
    assert saved.highest == {"any float32": BYTES}
    loss.backward()


def test_left_out_storages_and_roles() -> None:
    weight, x = torch.ones(SIZE, requires_grad=True), torch.ones(SIZE)
    mask = torch.ones(SIZE, dtype=torch.bool)
    roles = {identity(mask.untyped_storage()): "mask"}
    with SavedTensors({identity(weight.untyped_storage())}, lambda storage: roles.get(storage, "other")) as saved:
        loss = (weight * x).masked_fill(mask, 0.0).sum()
    assert saved.highest == {"other float32": BYTES, "mask bool": SIZE}
    del loss


def test_tensors_that_backward_saves_are_left_out() -> None:
    x = torch.ones(SIZE, requires_grad=True)
    with SavedTensors(set(), lambda storage: "any") as saved:
        loss = (x.exp() ** 3).sum()
        before = dict(saved.highest)
        torch.autograd.grad(loss, x, create_graph=True)
    assert saved.highest == before == {"any float32": BYTES}


def test_weights_made_for_a_modules_time_are_left_out_with_their_views() -> None:
    """As an engine makes them: parameters that the step does not list."""
    gathered, x = torch.nn.Parameter(torch.ones(10, SIZE)), torch.ones(1, SIZE)
    with SavedTensors(set(), lambda storage: "any") as saved:
        loss = torch.nn.functional.linear(x, gathered).sum() + (gathered * x).sum()
    assert saved.highest == {"any float32": BYTES}
    loss.backward()
