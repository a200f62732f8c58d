"""A loss of a user's own that counts some of the targets, against a slow sum over every counted target in float64."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.config.run import ResolvedRun
from assay.model.own_model import batches_of
from assay.step.program import Step
from assay.training.batches import micro_batches_of, own_validation
from assay.training.evaluation import evaluate
from assay.training.loop import train_step
from support.counted_losses import LENGTH, counted_run
from support.random_data import RandomData
from support.steps import CPU, build_step

Slow = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, int]]


def of_labels(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
    losses = [
        -model(x[row : row + 1])[0, place].log_softmax(0)[label]
        for row, labels in enumerate(y.tolist())
        for place, label in enumerate(labels)
        if label >= 0
    ]
    return torch.stack(losses).sum(), len(losses)


def of_masked(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
    rows = [row for row in range(len(x)) if x[row, 0] > 0]
    return torch.stack([model(x[row : row + 1])[0, :, 0].square().sum() for row in rows]).sum(), LENGTH * len(rows)


LOSSES = {"own(summed)": of_labels, "own(listed)": of_labels, "own(ignored)": of_labels, "own(masked_sum)": of_masked}


def step_of(run: ResolvedRun) -> Step:
    return build_step(run, RandomData(run))


def wide(step: Step) -> nn.Module:
    """The model of a step in float64."""
    return copy.deepcopy(step.parts[0].model).double()


@pytest.mark.parametrize("technique", ["", "gradient_accumulation:micro_batches=4", "optimizer_in_backward"])
@pytest.mark.parametrize("model", LOSSES)
def test_a_step_counts_what_its_loss_counts(tmp_path: Path, model: str, technique: str) -> None:
    run = counted_run(tmp_path, model, *filter(None, [technique]))
    step = step_of(run)
    truth, rows = wide(step), micro_batches_of(step.program, 0)
    x, y = (torch.cat(one) for one in zip(*rows, strict=True))
    loss, targets = LOSSES[model](truth, x.double(), y)
    record = train_step(step, 0)
    assert record.loss == pytest.approx(loss.item() / targets, rel=1e-6)
    assert (record.tokens, record.targets) == (targets, y.numel())
    assert 0 < targets < y.numel()


@pytest.mark.parametrize("cuts", [1, 2, 4])
@pytest.mark.parametrize("model", LOSSES)
def test_gradients_are_divided_by_the_counted_targets(tmp_path: Path, model: str, cuts: int) -> None:
    technique = [f"gradient_accumulation:micro_batches={cuts}"] if cuts > 1 else []
    step = step_of(counted_run(tmp_path, model, *technique))
    truth, rows = wide(step), micro_batches_of(step.program, 0)
    x, y = (torch.cat(one) for one in zip(*rows, strict=True))
    loss, targets = LOSSES[model](truth, x.double(), y)
    wanted = torch.autograd.grad(loss / targets, list(truth.parameters()))
    step.program.gradients(step, rows, y.numel())
    for (name, parameter), gradient in zip(step.named_parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad.double(), gradient, rtol=1e-4, atol=1e-7), name


@pytest.mark.parametrize("rows", [4, 16, 48])
@pytest.mark.parametrize("cuts", [1, 4])
@pytest.mark.parametrize("model", ["own(summed)", "own(listed)", "own(ignored)"])
def test_a_validation_loss_does_not_depend_on_the_batch_size(tmp_path: Path, model: str, cuts: int, rows: int) -> None:
    technique = [f"gradient_accumulation:micro_batches={cuts}"] if cuts > 1 else []
    step = step_of(counted_run(tmp_path, model, *technique, batch_size=rows))
    own = batches_of(step.parts)
    windows, sample = own_validation(own, CPU)
    x, y = (torch.cat(one) for one in zip(*own.validation(), strict=True))
    with torch.no_grad():
        loss, targets = of_labels(wide(step), x.double(), y)
    found = evaluate(step, windows, None, 0, sample)
    assert found.loss == pytest.approx(loss.item() / targets, rel=1e-6)
    assert found.targets == found.split_targets == targets
    assert found.standard_error in (0.0, None)


def test_a_batch_without_a_counted_target_has_no_loss(tmp_path: Path) -> None:
    run = counted_run(tmp_path, "own(lambda model, x, y: (model(x).sum() * 0, 0))")
    step = step_of(run)
    record = train_step(step, 0)
    assert (record.finite, record.tokens) == (False, 0)
    windows, sample = own_validation(batches_of(step.parts), CPU)
    assert torch.tensor(evaluate(step, windows, None, 0, sample).loss).isnan()
