from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay.data import Prepared
from assay.model import GPT, Block
from assay.step.program import Step
from assay.training.evaluation import evaluate
from assay.training.loop import train_step
from assay.training.probes import ActivationNorms, RouterStatistics
from support.runs import tiny
from support.steps import step_of


def by_hand(step: Step) -> list[float]:
    ids, _ = step.program.batches(0, (0, 1))[0]
    (model,) = step.parts
    assert isinstance(model, GPT)
    x: Tensor = model.embedding(ids)
    norms = []
    for block in model.blocks:
        x = block(x)
        norms.append(torch.linalg.vector_norm(x).item())
    return [norms[0], norms[-1]]


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_norms_are_of_all_activations_of_the_step(corpus: Prepared, micro_batches: int) -> None:
    step = step_of(tiny(n_layer=3), corpus, micro_batches=micro_batches)
    expected = by_hand(step)
    assert train_step(step, 0, ActivationNorms(step)).activation_norms == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputed_block_counts_once(corpus: Prepared, reentrant: bool) -> None:
    step = step_of(tiny(), corpus)
    expected = by_hand(step)
    probes = ActivationNorms(step)
    for block in step.modules_of(Block):
        block.forward = partial(checkpoint, block.forward, use_reentrant=reentrant)  # type: ignore[method-assign]
    (model,) = step.parts
    assert isinstance(model, GPT)
    step.program.gradients(step, step.program.batches(0, (0, 1)), 64)
    assert [norm.item() for norm in probes.take()] == pytest.approx(expected, rel=1e-5)


def test_a_hook_inside_a_recomputation_does_not_count(corpus: Prepared) -> None:
    step = step_of(tiny(n_layer=1), corpus)
    probes = ActivationNorms(step)
    (block,) = step.modules_of(Block)
    x = torch.randn(1, 4, 16, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False)
    (first, last) = (norm.item() for norm in probes.take())
    y.sum().backward()
    assert probes.take() == []
    assert first == last == pytest.approx(torch.linalg.vector_norm(y).item(), rel=1e-6)


def test_evaluations_do_not_count_and_removed_probes_see_nothing(corpus: Prepared) -> None:
    step = step_of(tiny(), corpus)
    probes = ActivationNorms(step)
    step.program.evaluate(step, step.program.batches(0, (0, 1)))
    assert probes.take() == []
    probes.remove()
    assert train_step(step, 0, probes).activation_norms == ()


def test_probes_change_no_bit_of_the_training(corpus: Prepared) -> None:
    watched, plain = step_of(tiny(dropout=0.1), corpus), step_of(tiny(dropout=0.1), corpus)
    torch.manual_seed(0)
    seen = train_step(watched, 0, ActivationNorms(watched))
    torch.manual_seed(0)
    clocks = {"seconds": 0, "data_seconds": 0}
    assert replace(seen, activation_norms=(), **clocks) == replace(train_step(plain, 0), **clocks)


@pytest.mark.parametrize("capacity", [None, 0.5])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_router_statistics_count_every_choice_once(
    corpus: Prepared, capacity: float | None, micro_batches: int
) -> None:
    run = tiny(n_layer=3, n_expert=4, n_expert_active=2, expert_capacity=capacity)
    step = step_of(run, corpus, micro_batches=micro_batches)
    for block in step.modules_of(Block):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
    statistics = RouterStatistics(step)
    assert statistics.take() == []
    for index in range(2):
        train_step(step, index)
        evaluate(step, lambda: step.program.batches(0, (0, 1)), 1.0, 0)
        layers = statistics.take()
        assert len(layers) == 3
        for layer in layers:
            assert sum(layer.tokens) == run.tokens_per_step * 2
            assert layer.imbalance == max(layer.tokens) / (run.tokens_per_step * 2 / 4)
            assert layer.balance > 0.9
            if capacity is None:
                assert layer.dropped == 0
            else:
                # Half of the choices have places, and an expert that lacks tokens leaves some of its own empty.
                assert 0.5 <= layer.dropped < 1
    statistics.remove()
    train_step(step, 2)
    assert statistics.take() == []
