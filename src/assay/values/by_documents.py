"""A slow reference of attention within documents: each document of a row is computed by itself, without a mask.

Its tokens keep their positions in the row.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from assay.model import GPT
from assay.model.attention import Attention


def compute_by_documents(model: nn.Module, end: int) -> None:
    """Have a GPT return the summed loss of all documents, which end with the token `end`, one after the other."""
    assert isinstance(model, GPT)

    def forward(ids: Tensor, targets: Tensor) -> Tensor:
        losses = []
        for row, wanted in zip(ids, targets, strict=True):
            for first, last in _documents(row.tolist(), end):
                _place(model, torch.arange(first, last, device=ids.device))
                losses.append(model.head(model.hidden(row[None, first:last]), wanted[None, first:last]))
        _place(model, None)
        return torch.stack(losses).sum()

    model.forward = forward  # type: ignore[method-assign]


def _documents(row: list[int], end: int) -> list[tuple[int, int]]:
    """First and last place, exclusive, of each document of a row."""
    cuts = [place + 1 for place, token in enumerate(row) if token == end]
    edges = sorted({0, *cuts, len(row)})
    return list(pairwise(edges))


def _place(model: GPT, positions: Tensor | None) -> None:
    model.embedding.positions = positions
    for module in model.modules():
        if isinstance(module, Attention):
            module.positions = positions
