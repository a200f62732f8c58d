"""The baseline at rounded weights: how far rounding alone moves a loss of a user's own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module, Tanh

from assay.optimizations.stack import expected_of
from assay.reference.expected import Rounding
from assay.values.baseline import Reference
from assay.values.masks import Noise
from support.steps import CPU
from values.recording import RandomData, own_run

DRAWS = 400


def test_the_spread_is_that_of_rounding_errors_whose_signs_are_drawn(tmp_path: Path) -> None:
    run = own_run(tmp_path, "bf16_mixed")
    expected = expected_of(run)
    truth = Reference(run, expected, RandomData(run), CPU, torch.float64, 0.0)  # type: ignore[arg-type]
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
