"""A model in 16 bits: its weights, and so its activations and gradients, in another dtype; its loss in float32.

The logits are lifted in front of the loss: summed over a batch's tokens it would overflow float16 (largest number
65504), and in bfloat16 have two decimal digits.
"""

from collections.abc import Iterable

import torch
from torch import nn

from assay.model.gpt import Head


def narrow(parts: Iterable[nn.Module], dtype: torch.dtype) -> None:
    """Change the dtype of every weight, in place; on the meta device that touches no storage."""
    for part in parts:
        part.to(dtype)
        lift_logits(part)


def lift_logits(part: nn.Module) -> None:
    """Have the loss of what computes in 16 bits summed in float32."""
    for module in part.modules():
        if isinstance(module, Head):
            module.projection.register_forward_hook(lambda _, inputs, logits: logits.float())
