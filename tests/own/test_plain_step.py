"""The step of a model, a batch and an optimizer does what the same step does that is written out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import UsageError
from assay.fake.gated_step import gated_step
from assay.own.plain_step import plain_step
from assay.worker.programs.own import checked_step

X, Y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 0, 1])


class Classifier(nn.Module):
    """Returns its loss in one of the forms that people have."""

    def __init__(self, form: Callable[[Tensor, Tensor], Any] = lambda logits, loss: loss) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.form = nn.Linear(3, 2), form

    def forward(self, x: Tensor, y: Tensor) -> Any:
        logits = self.head(x)
        return self.form(logits, functional.cross_entropy(logits, y))


def written_out(steps: int, lr: float | None = None) -> Tensor:
    """The weights after some steps that are written out."""
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters()) if lr is None else torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        model(X, Y).backward()
        optimizer.step()
    return model.head.weight.detach()


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], {"y": Y, "x": X}, lambda: (X, Y)])
def test_a_batch_in_each_form_trains_as_the_step_that_is_written_out(batch: Any) -> None:
    model = Classifier()
    step = plain_step((model, batch))
    assert step is not None
    losses = [float(step()) for _ in range(3)]
    assert losses[2] < losses[0]
    assert torch.equal(model.head.weight, written_out(3))


@pytest.mark.parametrize(
    "form", [lambda logits, loss: (logits, loss), lambda logits, loss: {"loss": loss, "z": logits}]
)
def test_a_loss_is_found_among_results_and_a_given_optimizer_is_used(form: Any) -> None:
    model = Classifier(form)
    step = plain_step([model, (X, Y), torch.optim.SGD(model.parameters(), lr=0.5)])
    assert step is not None
    step()
    assert torch.equal(model.head.weight, written_out(1, lr=0.5))


def test_its_figures_are_those_of_the_step_that_is_written_out() -> None:
    def by_hand() -> Callable[[], Any]:
        model, optimizer = (made := Classifier()), torch.optim.AdamW(made.parameters())

        def step() -> None:
            optimizer.zero_grad()
            loss = model(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))
            loss.backward()
            optimizer.step()

        return step

    def parts() -> Callable[[], Any]:
        return checked_step("a.py:build", (Classifier(), lambda: (torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))))

    found, wanted = (gated_step(make, "cpu", Path(__file__).parent) for make in (parts, by_hand))
    assert found.figures == wanted.figures


def test_a_model_without_a_loss_is_refused() -> None:
    step = plain_step((Classifier(lambda logits, loss: logits), (X, Y)))
    assert step is not None
    with pytest.raises(UsageError, match="the Classifier returned no loss"):
        step()


@pytest.mark.parametrize("made", [(X, Y), (nn.Linear(1, 1),), (nn.Linear(1, 1), X, 0.1), nn.Linear(1, 1), 3])
def test_other_results_are_refused_with_the_forms_of_a_step(made: Any) -> None:
    with pytest.raises(UsageError, match=r"a.py:build returned a .* or \(model, batch\) or"):
        checked_step("a.py:build", made)
