"""Muon for the hidden matrices, AdamW for everything else (kellerjordan.github.io/posts/muon, arXiv:2502.16982).

Muon is torch's. Its steps are scaled to the size of AdamW's, 0.2·√max(rows, columns), so that both share a learning
rate and a weight decay. AdamW updates embeddings, output weights, positions, biases and gains.
"""

from collections.abc import Callable

import torch

from assay.config import TrainingConfig
from assay.cost.optimizers.matrix import is_hidden_matrix
from assay.optimizers.bases import Joined
from assay.optimizers.recipes import adamw
from assay.step.program import NamedParameters, OptimizerLike


def muon(training: TrainingConfig, momentum: float) -> Callable[[NamedParameters], OptimizerLike]:
    """Return Muon and AdamW as one recipe."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        hidden = [one for name, one in parameters if is_hidden_matrix(name, one.ndim)]
        rest = [(name, one) for name, one in parameters if not is_hidden_matrix(name, one.ndim)]
        # Given a single parameter, one of the two optimizers has none.
        return Joined([*([orthogonal(hidden)] if hidden else []), *([adamw(training)(rest)] if rest else [])])

    def orthogonal(hidden: list[torch.nn.Parameter]) -> OptimizerLike:
        return torch.optim.Muon(
            hidden,
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            momentum=momentum,
            adjust_lr_fn="match_rms_adamw",
        )

    return recipe
