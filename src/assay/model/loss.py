"""Cross-entropy behind a projection to the vocabulary, at once or in pieces of rows.

At once the logits `[n, V]` of all n tokens are written out, their log-probabilities beside them and the gradient of
both: at GPT-2's vocabulary the largest tensors of the step. In pieces only those of n/chunks tokens exist at a time,
in forward and again in backward, which computes each piece's logits anew and adds up the weight's gradient (the
chunking of arXiv:2410.10989, with recomputation in place of gradients made in forward: those would have to be kept by
every micro-batch that a pipeline has under way). Torch's own `linear_cross_entropy` is not used (decision 12).

The softmax is computed in float32 or wider, whatever dtype the products have. The gradient of a weight in 16 bits is
added up in 16 bits, one rounding a piece.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

NOT_COUNTED = -100
"""The target that cross-entropy leaves out."""


def cross_entropy(projection: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """`x [n, n_embd]`, `targets [n]` → the summed loss in nats, all logits at once."""
    logits = projection(x)
    del x  # under autocast nothing else holds it
    return F.cross_entropy(logits, targets, ignore_index=NOT_COUNTED, reduction="sum")


class ChunkedCrossEntropy:
    """The same, the rows in `chunks` pieces whose lengths differ by one at most."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def __call__(self, projection: nn.Linear, x: Tensor, targets: Tensor) -> Tensor:
        """`x [n, n_embd]`, `targets [n]` → the summed loss in nats."""
        weight = projection.weight
        if torch.is_autocast_enabled(x.device.type):
            # Cast out here, so that autograd casts the gradients back.
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(dtype), weight.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            loss: Tensor = _InPieces.apply(x, weight, targets, self.chunks)  # type: ignore[no-untyped-call]
        return loss


class _InPieces(torch.autograd.Function):
    """Keeps its inputs, and computes the logits of each piece twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, chunks: int) -> Tensor:
        ctx.save_for_backward(x, weight, targets)
        ctx.chunks = chunks
        loss = x.new_zeros((), dtype=_wide(x.dtype))
        for rows, wanted in zip(x.tensor_split(chunks), targets.tensor_split(chunks), strict=True):
            logits = (rows @ weight.t()).to(loss.dtype)
            loss += F.cross_entropy(logits, wanted, ignore_index=NOT_COUNTED, reduction="sum")
            del logits  # else it would live beside the next piece's
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight, targets = ctx.saved_tensors
        by_x, by_weight = torch.empty_like(x), torch.zeros_like(weight)
        for rows, wanted, out in zip(*(one.tensor_split(ctx.chunks) for one in (x, targets, by_x)), strict=True):
            logits = (rows @ weight.t()).to(gradient.dtype)
            by_logits = torch.log_softmax(logits, dim=-1).exp_()
            del logits
            by_logits = _less_targets(by_logits, wanted, gradient).to(weight.dtype)
            torch.mm(by_logits, weight, out=out)
            by_weight.addmm_(by_logits.t(), rows)
            del by_logits
        return by_x, by_weight, None, None


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _less_targets(probabilities: Tensor, targets: Tensor, gradient: Tensor) -> Tensor:
    """Less one at the target, and times the loss's gradient, in place; zero where the target is not counted."""
    counted = targets != NOT_COUNTED
    at = torch.where(counted, targets, 0).unsqueeze(-1)
    probabilities.scatter_(1, at, probabilities.gather(1, at) - 1)
    return probabilities.mul_((counted * gradient).unsqueeze(-1))
