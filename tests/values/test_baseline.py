"""The baseline at given weights: its loss alone, and how far rounding moves a loss of a user's own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import Dropout, Linear, Module, Tanh

from assay.config import Spec
from assay.config.run import ResolvedRun
from assay.optimizations import resolve_run
from assay.optimizations.stack import expected_of
from assay.reference.expected import Rounding
from assay.values.baseline import Reference
from assay.values.masks import Noise
from support.runs import SHAPE, run_with
from support.steps import CPU
from values.recording import MODEL, RandomData, own_run

DRAWS = 400


def reference_of(run: ResolvedRun, dtype: torch.dtype) -> Reference:
    return Reference(run, expected_of(run), RandomData(run), CPU, dtype, 0.0)  # type: ignore[arg-type]


def preset_run(*specs: Spec, dropout: float) -> ResolvedRun:
    return resolve_run(run_with(*specs, model=SHAPE.model_copy(update={"dropout": dropout})))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_alone_is_that_of_a_step(dropout: float, dtype: torch.dtype) -> None:
    run = preset_run(dropout=dropout)
    reference, noise = reference_of(run, dtype), Noise({"cpu": torch.get_rng_state()})
    ids = torch.randint(run.model.vocabulary, (4, run.model.context_length))
    weights = reference_of(run, torch.float32).weights()
    given = weights, [(ids[:2], ids[:2].roll(-1, 1)), (ids[2:], ids[2:].roll(-1, 1))], noise
    alone = reference.loss_at(*given)
    assert alone == reference.at(*given).loss
    assert (reference.at(*given, dropout=False).loss == alone) is (dropout == 0)
    assert reference.loss_at(*given, dropout=False) == reference.at(*given, dropout=False).loss


def test_the_loss_of_a_users_own_is_divided_by_what_it_counts(tmp_path: Path) -> None:
    inputs, losses = torch.randn(8, 4), []
    for loss in ("(model(x) - y).square().mean()", "((model(x) - y).square().sum(), 5)"):
        text = MODEL.replace("(model(x) - y).square().mean()", loss)
        run = own_run(tmp_path / str(len(losses)), text=text)
        reference = reference_of(run, torch.float32)
        given = reference.weights(), [(inputs, inputs[:, :2].sin())], Noise({"cpu": torch.get_rng_state()})
        losses.append(reference.loss_at(*given))
        assert losses[-1] == reference.at(*given).loss
    assert losses[1] == pytest.approx(losses[0] * 16 / 5)


NOISY = MODEL.replace("nn.Tanh()", "nn.Dropout(0.5)")
FROZEN = (
    MODEL.replace("nn.Tanh()", "Frozen(0.5)")
    + """
class Frozen(nn.Dropout):
    def train(self, mode=True):
        return super().train(False)
"""
)
"""Its dropout stays as in an evaluation, whatever its model does."""


def test_a_module_may_refuse_a_mode_and_modes_last_until_they_are_changed(tmp_path: Path) -> None:
    inputs, losses = torch.randn(8, 4), []
    for text in (NOISY, FROZEN):
        reference = reference_of(own_run(tmp_path / str(len(losses)), text=text), torch.float32)
        given = reference.weights(), [(inputs, inputs[:, :2].sin())], Noise({"cpu": torch.get_rng_state()})
        first = reference.at(*given).loss
        without = reference.at(*given, dropout=False).loss
        evaluated, _ = reference.evaluated_at(*given, {})
        assert reference.at(*given).loss == first
        assert reference.loss_at(*given, dropout=False) == without == pytest.approx(evaluated)
        losses.append((first, without))
    assert losses[0][0] != losses[0][1]
    assert losses[1][0] == losses[1][1] == losses[0][1]


def test_a_module_that_returns_what_it_is_given_rounds_nothing() -> None:
    run = preset_run(Spec(name="bf16_mixed"), dropout=0.0)
    reference, noise = reference_of(run, torch.float32), Noise({"cpu": torch.get_rng_state()})
    ids = torch.randint(run.model.vocabulary, (4, run.model.context_length))
    given = reference.weights(), [(ids, ids.roll(-1, 1))], noise
    found = reference.rounded_at(*given, Rounding(dtype="bfloat16")).spread
    idle = [one for part in reference._step.parts for one in part.modules() if isinstance(one, Dropout)]
    assert idle
    for one in idle:
        one.forward = lambda given: given.clone()  # type: ignore[method-assign]
    assert reference.rounded_at(*given, Rounding(dtype="bfloat16")).spread > 1.01 * found


def test_the_spread_is_that_of_rounding_errors_whose_signs_are_drawn(tmp_path: Path) -> None:
    run = own_run(tmp_path, "bf16_mixed")
    truth = reference_of(run, torch.float64)
    weights, noise = truth.weights(), Noise({"cpu": torch.get_rng_state()})
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: one + 0.3 * torch.randn(one.shape, generator=generator, dtype=one.dtype) for name, one in weights.items()
    }
    inputs = torch.randn(8, 4, generator=generator, dtype=torch.float64).bfloat16().double()  # only weights are rounded
    batches = [(inputs, inputs[:, :2].sin())]
    exact = truth.at(weights, batches, noise).loss
    errors = {name: one.bfloat16().double() - one for name, one in weights.items()}

    def by_chance(error: Tensor) -> Tensor:
        return error * (torch.randint(0, 2, error.shape, generator=generator) * 2 - 1)

    def moved_result(module: Module, arguments: object, result: Tensor) -> Tensor:
        return result + by_chance(result.detach().bfloat16().double() - result.detach())

    leaves = [one for part in truth._step.parts for one in part.modules() if isinstance(one, Linear | Tanh)]
    assert len(leaves) == 3

    def drawn() -> float:
        handles = [one.register_forward_hook(moved_result) for one in leaves]
        moved = {name: one + by_chance(errors[name]) for name, one in weights.items()}
        loss = truth.at(moved, batches, noise).loss
        for handle in handles:
            handle.remove()
        return loss - exact

    seen = sum(drawn() ** 2 for _ in range(DRAWS)) / DRAWS
    found = truth.rounded_at(weights, batches, noise, Rounding(dtype="bfloat16"))
    # Few results dominate, and their errors are typical ones in place of their own.
    assert found.spread == pytest.approx(seen**0.5, rel=0.35)
