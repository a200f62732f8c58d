"""The load-balancing loss of a router, which affects gradients and is part of no reported loss.

For one micro-batch of n tokens, on all ranks that share it, and E experts it is E·Σᵢ fᵢ·Pᵢ (Switch, arXiv:2101.03961,
equations 4 to 6). The share of assignments to expert i is fᵢ, and Pᵢ is the mean of its probability. The loss is 1 if
both are even. The shares count all k choices of a token and sum to 1, so that the loss does not grow with k. Choices
are counted before a capacity drops any. The shares result from a discrete choice and have no gradient.

The objective is (Σ cross-entropies + α·Σ n·balance)/(tokens of the global batch). The second sum is over micro-batches,
so their balance losses are averaged, weighted by tokens. The balance loss is thus added to the *summed* loss with the
weight α·n. Its gradient by a token's probability is α·E·fᵢ (n cancels), times the factor that scales the summed loss
before backward: 1/tokens, an fp16 loss scale and any other. That factor is the gradient of the summed loss, and
backward reaches the loss before any router. So a hook on the loss stores it (`note_factor`), and the routers read it;
code that scales the loss need not know about routers. Adding the gradient in backward is the idea of Megatron-LM's
auxiliary-loss scaler, which receives the factor explicitly.

The balance of a micro-batch is not the balance of a batch, because cutting a batch changes f. With α > 0, accumulated
gradients equal those of the mean of micro-batch losses, not those of the whole batch at once.
A backward that does not start at the loss (one stage of a pipeline) sets the factor with `scale_balance`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from assay.model.backward import backward_id


class _Factor:
    """The gradient of the summed loss, with the id of its backward pass; or a factor that `scale_balance` has set."""

    backward: int | None = None
    noted: Tensor | None = None
    said: Tensor | float | None = None

    def note(self, gradient: Tensor) -> None:
        self.backward = backward_id()
        if self.noted is None or (self.noted.dtype, self.noted.device) != (gradient.dtype, gradient.device):
            self.noted = torch.empty_like(gradient)
        self.noted.copy_(gradient)  # in place, so that a step frees no tensor of the step before

    def read(self) -> Tensor | float:
        if self.said is not None:
            return self.said
        if self.noted is None or self.backward != backward_id():
            raise RuntimeError(
                "a router's balance loss has no scale, because this backward did not start at the model's summed loss; "
                "wrap it in `scaled_by(factor)`, or set model.router_loss=0"
            )
        return self.noted


_factor = _Factor()
"""One object per process, not per thread: autograd runs the nodes of each device in a thread of its own."""


def note_factor(loss: Tensor) -> Tensor:
    """Return `loss`, the summed loss, with a hook: a backward from it scales the balance losses like the loss."""
    if loss.requires_grad:
        loss.register_hook(_factor.note)  # type: ignore[no-untyped-call]
    return loss


@contextmanager
def scale_balance(factor: Tensor | float) -> Iterator[None]:
    """Scale balance losses in backward passes inside by `factor`, by which the summed loss would be multiplied."""
    earlier, _factor.said = _factor.said, factor
    try:
        yield
    finally:
        _factor.said = earlier


def add_balance_loss(probabilities: Tensor, shares: Tensor, coefficient: float) -> Tensor:
    """Return `probabilities [n, E]` unchanged; backward adds the gradient of the balance loss for `shares [E]`.

    Backward raises `RuntimeError` if it did not start at the summed loss and is not inside `scale_balance`.
    """
    gradient = shares * (coefficient * shares.numel())
    joined: Tensor = _Balance.apply(probabilities, gradient)  # type: ignore[no-untyped-call]
    return joined


def balance_loss(probabilities: Tensor, shares: Tensor) -> Tensor:
    """Return the value E·Σᵢ fᵢ·Pᵢ, a scalar, for reports."""
    return shares.numel() * (shares * probabilities.mean(dim=0)).sum()


class _Balance(torch.autograd.Function):
    """Identity in forward; backward adds the stored factor times a constant per expert."""

    @staticmethod
    def forward(ctx: Any, probabilities: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return probabilities.view_as(probabilities)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return incoming + gradient * _factor.read(), None
