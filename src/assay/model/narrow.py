"""A model in 16 bits: weights, and therefore activations and gradients, in another dtype; the loss in float32.

The logits are cast to float32 before the loss. Summed over a batch's tokens, the loss would overflow float16 (largest
number 65504), and would have two decimal digits in bfloat16.
"""

from collections.abc import Iterable

import torch
from torch import nn

from assay.model.gpt import Head


def narrow(parts: Iterable[nn.Module], dtype: torch.dtype) -> None:
    """Change the dtype of every weight in place; the loss stays float32. Meta tensors take no memory."""
    for part in parts:
        part.to(dtype)
        lift_logits(part)


def lift_logits(part: nn.Module) -> None:
    """Cast the logits of every head in `part` to float32, so that the loss is summed in float32."""
    for module in part.modules():
        if isinstance(module, Head):
            module.projection.register_forward_hook(lambda _, inputs, logits: logits.float())
