"""Cross-entropy of a projection to the vocabulary, for all rows at once or in chunks of rows.

Computed at once, the logits `[n, V]` of all n tokens, their log-probabilities and the gradients of both are allocated.
At GPT-2's vocabulary these are the largest tensors of the step. In chunks, only those of n/chunks tokens exist at a
time. Backward recomputes each chunk's logits and accumulates the weight's gradient. The chunking is that of
arXiv:2410.10989, but with recomputation instead of gradients computed in forward. Those would have to be kept for
every micro-batch in flight in a pipeline. Torch's own `linear_cross_entropy` is not used (decision 12).

The softmax is computed in float32 or wider, whatever the dtype of the products. The gradient of a 16-bit weight is
accumulated in 16 bits, with one rounding per chunk.

A loss of a user's own may leave some targets out, so their number is known only after its forward (`Tally`).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Count = Tensor | float
"""A number of targets; a tensor stays on the device until the host reads it with the figures of its step."""


@dataclass(eq=False)
class TargetTally:
    """Targets that a user's own loss counted, in its last forward and in all forwards of a step."""

    last: Count = 0
    """Targets of the last forward."""
    step: Count = 0
    """Targets of all micro-batches of the last step."""


def host(count: Count) -> float:
    """Return a count as a number of the host, which waits for the device."""
    return count.item() if isinstance(count, Tensor) else count


NOT_COUNTED = -100
"""Target index that cross-entropy ignores."""


class VocabularyProjection(nn.Linear):
    """The projection to the vocabulary, without a bias; a cap c bends its logits to c·tanh(logits/c)."""

    def __init__(self, width: int, vocabulary: int, cap: float | None = None) -> None:
        super().__init__(width, vocabulary, bias=False)
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        logits = F.linear(x, self.weight)
        if self.cap is None:
            return logits
        logits = logits * (1.0 / self.cap)  # each name is used again, so that what nothing saves is freed
        logits = logits.tanh()
        return logits * self.cap


def cross_entropy(projection: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """Return the summed loss in nats of `x [n, n_embd]` and `targets [n]`, from all logits at once."""
    logits = projection(x)
    del x  # under autocast this is the last reference to it
    return F.cross_entropy(logits, targets, ignore_index=NOT_COUNTED, reduction="sum")


class ChunkedCrossEntropy:
    """Cross-entropy of the rows in `chunks` chunks, whose lengths differ by one at most."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def __call__(self, projection: VocabularyProjection, x: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss in nats of `x [n, n_embd]` and `targets [n]`."""
        weight = projection.weight
        if torch.is_autocast_enabled(x.device.type):
            # Cast outside the autograd function, so that autograd casts the gradients back.
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(dtype), weight.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            loss: Tensor = _InPieces.apply(x, weight, targets, self.chunks, projection.cap)  # type: ignore[no-untyped-call]
        return loss


class _InPieces(torch.autograd.Function):
    """Saves only its inputs for backward, which recomputes the logits of each chunk."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, chunks: int, cap: float | None) -> Tensor:
        ctx.save_for_backward(x, weight, targets)
        ctx.chunks, ctx.cap = chunks, cap
        loss = x.new_zeros((), dtype=_wide(x.dtype))
        for rows, wanted in zip(x.tensor_split(chunks), targets.tensor_split(chunks), strict=True):
            logits = _bent(rows @ weight.t(), cap).to(loss.dtype)
            loss += F.cross_entropy(logits, wanted, ignore_index=NOT_COUNTED, reduction="sum")
            del logits  # else it would be alive while the next chunk's are computed
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        x, weight, targets = ctx.saved_tensors
        by_x, by_weight = torch.empty_like(x), torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for rows, wanted, out in zip(*(one.tensor_split(ctx.chunks) for one in (x, targets, by_x)), strict=True):
            logits = _bent(rows @ weight.t(), ctx.cap).to(gradient.dtype)
            by_logits = torch.log_softmax(logits, dim=-1).exp_()
            slope = None if ctx.cap is None else logits.div_(ctx.cap).square_().neg_().add_(1.0)
            del logits
            by_logits = _less_targets(by_logits, wanted, gradient)
            if slope is not None:
                by_logits.mul_(slope)
                del slope
            by_logits = by_logits.to(weight.dtype)
            torch.mm(by_logits, weight, out=out)
            if by_weight is not None:
                by_weight.addmm_(by_logits.t(), rows)
            del by_logits
        return by_x, by_weight, None, None, None


def _bent(logits: Tensor, cap: float | None) -> Tensor:
    """Cap the logits as the projection does, in place."""
    return logits if cap is None else logits.mul_(1.0 / cap).tanh_().mul_(cap)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _less_targets(probabilities: Tensor, targets: Tensor, gradient: Tensor) -> Tensor:
    """Subtract 1 at the targets and multiply by the loss's gradient, in place; rows of ignored targets become 0."""
    counted = targets != NOT_COUNTED
    at = torch.where(counted, targets, 0).unsqueeze(-1)
    probabilities.scatter_(1, at, probabilities.gather(1, at) - 1)
    return probabilities.mul_((counted * gradient).unsqueeze(-1))
