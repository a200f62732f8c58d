"""The load-balancing loss of a router, which acts on gradients and appears in no reported loss.

For one micro-batch of n tokens, on all ranks that share it, and E experts it is E·Σᵢ fᵢ·Pᵢ (Switch, arXiv:2101.03961,
equations 4 to 6): fᵢ the share of assignments that went to expert i, Pᵢ the mean of its probability; 1 when both are
even. fᵢ counts all k choices of a token and sums to 1, so that the loss does not grow with k, and it counts before a
capacity drops any. Shares come out of a choice and have no gradient.

What is minimised is (Σ cross-entropies + α·Σ n·balance)/(tokens of the global batch), the inner sum over micro-batches:
their mean, weighted by tokens. So the balance loss joins the *summed* loss with the weight α·n. Its gradient by the
probability of a token is α·E·fᵢ — n cancels — times the factor by which the summed loss is scaled before it is
differentiated: 1/tokens, an fp16 loss scale, whatever else. That factor is the gradient which reaches the summed loss,
and backward meets the loss before any router. So it is noted there (`noted`) and read here, and whoever scales the loss
need not know that routers exist. Adding in backward is the idea of Megatron-LM's auxiliary-loss scaler, which is told
the factor instead.

The balance of a micro-batch is not the balance of a batch: cutting a batch changes f, so with α > 0 accumulated
gradients equal those of the mean of micro-batch losses, not those of the whole batch at once.
A backward that never meets the loss (one stage of a pipeline) says the factor with `scaled_by`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _Factor:
    """The gradient of the summed loss, and the backward pass that it belongs to; or one that was said."""

    backward: int = -1
    noted: Tensor | None = None
    said: Tensor | float | None = None

    def note(self, gradient: Tensor) -> None:
        self.backward, self.noted = torch._C._current_graph_task_id(), gradient.detach()

    def read(self) -> Tensor | float:
        if self.said is not None:
            return self.said
        if self.noted is None or self.backward != torch._C._current_graph_task_id():
            raise RuntimeError(
                "a router's balance loss has no scale, because this backward did not start at the model's summed loss; "
                "wrap it in `scaled_by(factor)`, or set model.router_loss=0"
            )
        return self.noted


_factor = _Factor()
"""Of the process, not the thread: autograd runs the nodes of each device in a thread of its own."""


def noted(loss: Tensor) -> Tensor:
    """The summed loss itself; a backward from it will scale the balance losses as it scales the loss."""
    if loss.requires_grad:
        loss.register_hook(_factor.note)  # type: ignore[no-untyped-call]
    return loss


@contextmanager
def scaled_by(factor: Tensor | float) -> Iterator[None]:
    """Backward passes inside scale balance losses by `factor`, what the summed loss would be multiplied by."""
    earlier, _factor.said = _factor.said, factor
    try:
        yield
    finally:
        _factor.said = earlier


def balanced(probabilities: Tensor, shares: Tensor, coefficient: float) -> Tensor:
    """`probabilities [n, E]` as they are; their gradient gains that of the balance loss for `shares [E]`."""
    gradient = shares * (coefficient * shares.numel())
    joined: Tensor = _Balance.apply(probabilities, gradient)  # type: ignore[no-untyped-call]
    return joined


def balance_loss(probabilities: Tensor, shares: Tensor) -> Tensor:
    """E·Σᵢ fᵢ·Pᵢ: its value, for looking at."""
    return shares.numel() * (shares * probabilities.mean(dim=0)).sum()


class _Balance(torch.autograd.Function):
    """Identity forwards; backwards adds the noted factor times a constant by expert."""

    @staticmethod
    def forward(ctx: Any, probabilities: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return probabilities.view_as(probabilities)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return incoming + gradient * _factor.read(), None
