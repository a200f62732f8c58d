"""The step of a model, a batch and an optimizer, for whom has these and no function that trains once.

A batch is a tensor, a tuple or list of what the model takes, or a mapping by name. It may also be a function without
arguments that returns one, which each step calls. The loss is the one number among what the model returns. Autocast,
micro-batches and clipping need a step of one's own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import UsageError
from assay.model.own_model import number_among

FORMS = "a function that does one training step, or (model, batch) or (model, batch, optimizer)"
"""Results of a function of the user's own that are a step."""


def plain_step(parts: Sequence[Any]) -> Callable[[], Any] | None:
    """Return the step of (model, batch) or (model, batch, optimizer), by default AdamW; None for another sequence."""
    if len(parts) not in (2, 3) or not isinstance(parts[0], nn.Module):
        return None
    model, batch, *rest = parts
    optimizer = rest[0] if rest else torch.optim.AdamW(model.parameters())
    if not hasattr(optimizer, "zero_grad") or not hasattr(optimizer, "step"):
        return None

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = _loss(model, batch() if callable(batch) else batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step


def _loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss of a batch. Raises `UsageError` if the model returns none."""
    if isinstance(batch, Mapping):
        returned = model(**batch)
    else:
        returned = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    loss = number_among(returned)
    if loss is None:
        raise UsageError(
            f"the {type(model).__name__} returned no loss, a tensor of one element; return a function that does one "
            "training step, with its loss"
        )
    return loss
