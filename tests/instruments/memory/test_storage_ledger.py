"""The ledger of storages against torch's own allocator events, and against sums known beforehand."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from assay.config.run import Spec
from assay.instruments import operations
from assay.instruments.memory.memory_pass import live_tensor_bytes, live_tensors
from assay.instruments.memory.storage_ledger import Peak, StorageLedger, owners_of
from assay.training.loop import train_step
from support.runs import FOUR, VARIANTS, run_with
from support.steps import build_step, forget_tables, measured_peak

CPU = torch.device("cpu")
STACKS = {"baseline": (), "four": FOUR, "fused": (Spec(name="fused_adamw"),)}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("variant", ["baseline", "rotary", "untied"])
def test_the_peak_and_its_instant_are_the_allocator_s(variant: str, stack: str) -> None:
    run = run_with(*STACKS[stack], model=VARIANTS[variant])
    measured, peak, instant = measured_peak(run)
    del measured
    forget_tables()
    before = live_tensor_bytes(CPU)
    step = build_step(run)
    train_step(step, 0)
    state = list(operations.tensors_in(list(step.optimizer.state.values())))
    with StorageLedger() as ledger:
        ledger.begin(step.parts, owners_of(step.parts, state), live_tensors(CPU))
        train_step(step, 1)
    found = ledger.peak()
    assert found.instant == instant
    assert -2e-4 <= (found.nbytes - before) / peak - 1 <= 0
    assert sum(found.parts.values()) == found.nbytes
    assert found.parts["weights"] == sum(p.nbytes for _, p in step.named_parameters())
    assert found.parts["optimizer state"] == sum(one.nbytes for one in state)


class Squares(nn.Module):
    """The sum of the squares of a product: it saves its input, and the product."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).square().sum()


def peak_of(model: Squares, x: torch.Tensor, *, again: bool) -> Peak:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with StorageLedger() as ledger:
        ledger.begin([model], owners_of([model], [], [x]), [x, *model.parameters()])
        loss = checkpoint(model, x, use_reentrant=False) if again else model(x)
        loss.backward()
        optimizer.step()
    return ledger.peak()


def test_parts_are_those_computed_by_hand() -> None:
    """At the peak, the product is saved, and so are its gradient, twice its value times one, and the factor two."""
    width, rows = 16, 1000
    found = peak_of(Squares(width), torch.ones(rows, width), again=False)
    weights, activation = 4 * width * width, 4 * rows * width
    assert found.parts["weights"] == weights
    assert found.parts["token ids and targets"] == activation
    assert found.parts["saved: Squares"] == activation
    assert found.instant == "backward: PowBackward"
    assert found.parts["gradients of activations"] in range(activation, 3 * activation + 1)


def test_a_checkpoint_saves_nothing_that_it_recomputes() -> None:
    x = torch.ones(1000, 16)
    plain, again = (peak_of(Squares(16), x, again=one) for one in (False, True))
    assert "saved: Squares" in plain.parts
    assert "saved: Squares" not in again.parts


def test_gradients_that_outlive_the_step_before_are_gradients() -> None:
    model, x = Squares(16), torch.ones(4, 16)
    peak_of(model, x, again=False)
    found = peak_of(model, x, again=False)
    assert found.parts["gradients"] >= 4 * 16 * 16
