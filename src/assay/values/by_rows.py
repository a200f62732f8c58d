"""Batches of a reference, a few rows at a time, so that it needs no more of a GPU's memory than the run.

A baseline in float64 keeps twice the bytes of one in float32, and no technique saves any of them. Gradients of rows add
up, so it computes some rows after the others, with their parts of the dropout masks. On a CPU a baseline computes whole
batches: an exact technique must equal it bit for bit.

Where attention keeps within documents, a baseline computes each document of a row by itself.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import Module

from assay.config import ModelConfig, ResolvedRun
from assay.cost import baseline
from assay.cost.kernels import CUDA
from assay.cost.simulation.timeline import replay
from assay.errors import UsageError
from assay.estimator.estimate import estimate
from assay.hardware import detect
from assay.model import GPT
from assay.model.attention import Attention
from assay.optimizations import Unpredicted
from assay.values.masks import Noise

_FLOAT64 = 2
"""Bytes of float64 for each of float32. The baseline's optimizer state stands for the float32 reference beside it."""


def rows_at_once(run: ResolvedRun, model: ModelConfig, device: torch.device) -> int | None:
    """Return how many rows of a batch a reference of a run computes at once; None if it computes them all.

    It is the largest number with which the float64 baseline of `model` needs no more memory than the run, and at least
    one. A mixture balances the tokens of a whole batch, and no ledger knows a model of a user's own, so these are not
    divided.
    """
    if device.type != "cuda" or model.own is not None or model.n_expert is not None:
        return None
    plain = run.model_copy(update={"optimizations": (), "model": model, "ranks": 1, "batch_divisor": 1})
    most = peak_of_run(run) or _peak(plain, run.training.batch_size)
    low, high = 1, run.training.batch_size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _FLOAT64 * _peak(plain, middle) <= most else (low, middle - 1)
    return low


def peak_of_run(run: ResolvedRun) -> int | None:
    """Return the predicted peak of a run's tensors; None if it has no prediction."""
    try:
        return estimate(run, detect()).timeline.peak.nbytes
    except (UsageError, Unpredicted):
        return None


def _peak(plain: ResolvedRun, rows: int) -> int:
    training = plain.training.model_copy(update={"batch_size": rows})
    return replay(baseline(plain.model_copy(update={"training": training}), CUDA)).peak.nbytes


def forwards_by_rows(
    batches: Sequence[tuple[Tensor, Tensor]], noise: Noise, rows: int | None
) -> tuple[list[tuple[Tensor, Tensor]], Noise]:
    """Return forwards of at most so many rows, and the masks of each in its order.

    Masks are only divided where they were kept. A forward draws as many of them as any other.
    """
    if rows is None or all(len(ids) <= rows for ids, _ in batches):
        return list(batches), noise
    places = [
        (number, slice(first, first + rows))
        for number, (ids, _) in enumerate(batches)
        for first in range(0, len(ids), rows)
    ]
    parts = [(batches[number][0][part], batches[number][1][part]) for number, part in places]
    if noise.masks is None:
        return parts, noise
    each = len(noise.masks) // len(batches)
    masks = [mask[part] for number, part in places for mask in noise.masks[each * number : each * (number + 1)]]
    return parts, Noise(noise.states, masks)


def compute_by_documents(model: Module, end: int) -> None:
    """Have a GPT compute each document of a row by itself, without a mask. Its tokens keep their places in the row.

    Documents end with the token `end`. The GPT returns the sum of their losses.
    """
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
