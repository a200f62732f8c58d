"""Models of a user's own: one whose loss adds up over the rows of a batch, and many whose losses do not.

A loss that does not add up has another value over two micro-batches than over the whole batch. Gradient accumulation
then trains another model. Some of these losses are only seldom so.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import assay

IGNORED = -100
_CLASSES = 8


class Block(nn.Module):
    """A residual layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(x)))


class Net(nn.Module):
    """A small network from places in a plane to `outputs` numbers; with `normed` it has a norm over the batch."""

    def __init__(self, outputs: int = 1, width: int = 32, *, normed: bool = False) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(2, width), nn.Linear(width, outputs)
        self.norm = nn.BatchNorm1d(width) if normed else nn.Identity()
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))

    def forward(self, places: Tensor) -> Tensor:
        x = self.norm(self.stem(places))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _heights(places: Tensor) -> Tensor:
    return (3 * places).sin().sum(1, keepdim=True)


def _numbers(step: int, seed: int, rows: int) -> tuple[Tensor, Tensor]:
    places = 2 * torch.rand(rows, 2) - 1
    return places, _heights(places) + 0.1 * torch.randn(rows, 1)


def _labels(step: int, seed: int, rows: int) -> tuple[Tensor, Tensor]:
    places = 2 * torch.rand(rows, 2) - 1
    return places, ((_heights(places) + 2) * 2).long().clamp(0, _CLASSES - 1).flatten()


def _ignoring(due: Callable[[int], bool]) -> Callable[[int, int, int], tuple[Tensor, Tensor]]:
    """Return batches whose first rows have no label in the steps that are due."""

    def batches(step: int, seed: int, rows: int) -> tuple[Tensor, Tensor]:
        places, labels = _labels(step, seed, rows)
        if due(step):
            labels[: rows // 3] = IGNORED
        return places, labels

    return batches


def _validation(make: Callable[[int, int, int], tuple[Tensor, Tensor]]) -> Callable[[int], list[tuple[Tensor, Tensor]]]:
    def validation(rows: int) -> list[tuple[Tensor, Tensor]]:
        # The last batch is a partial one.
        return [make(0, 0, rows), make(0, 0, rows), make(0, 0, rows // 2)]

    return validation


def _of_numbers(loss: Callable[[Tensor, Tensor], Tensor], *, normed: bool = False) -> assay.OwnModel:
    model = Net(normed=normed)
    return assay.OwnModel(
        model, lambda net, places, heights: loss(net(places), heights), _numbers, _validation(_numbers)
    )


def _of_labels(
    loss: Callable[[Tensor, Tensor], Tensor], make: Callable[[int, int, int], tuple[Tensor, Tensor]] = _labels
) -> assay.OwnModel:
    model = Net(_CLASSES)
    return assay.OwnModel(model, lambda net, places, labels: loss(net(places), labels), make, _validation(_labels))


def waves() -> assay.OwnModel:
    """Squared errors, which add up."""
    return _of_numbers(functional.mse_loss)


def classes() -> assay.OwnModel:
    """Cross-entropy of labels that are all there, which adds up."""
    return _of_labels(functional.cross_entropy)


def ignored() -> assay.OwnModel:
    """The mean over the labels that are not ignored."""
    return _of_labels(functional.cross_entropy, _ignoring(lambda step: True))


def seldom_ignored() -> assay.OwnModel:
    """The mean over the labels that are not ignored, which only every third step after the fourth has."""
    return _of_labels(functional.cross_entropy, _ignoring(lambda step: 4 <= step < 24 and step % 3 == 0))


def weighted() -> assay.OwnModel:
    """The mean is weighted by class, and divided by the batch's sum of weights."""
    weights = torch.linspace(0.1, 2.0, _CLASSES)
    return _of_labels(lambda logits, labels: functional.cross_entropy(logits, labels, weight=weights.to(logits.dtype)))


def contrastive() -> assay.OwnModel:
    """Each row is told apart from the other rows of the batch."""

    def loss(embedded: Tensor, labels: Tensor) -> Tensor:
        near = functional.normalize(embedded, dim=1)
        own = functional.one_hot(labels, _CLASSES).to(near.dtype)
        return functional.cross_entropy(near @ own.T / 0.1, torch.arange(len(labels)))

    return _of_labels(loss)


def batch_norm() -> assay.OwnModel:
    """A norm takes its statistics from the batch."""
    return _of_numbers(functional.mse_loss, normed=True)


def spread() -> assay.OwnModel:
    """Adds the variance of the outputs over the batch."""
    return _of_numbers(lambda found, heights: functional.mse_loss(found, heights) + 0.1 * found.var())


def standardized() -> assay.OwnModel:
    """Standardizes the targets of each batch."""
    return _of_numbers(lambda found, heights: functional.mse_loss(found, (heights - heights.mean()) / heights.std()))


def hardest() -> assay.OwnModel:
    """Counts the hardest quarter of the rows only."""

    def loss(found: Tensor, heights: Tensor) -> Tensor:
        errors = (found - heights).square().flatten()
        return errors.topk(len(errors) // 4).values.mean()

    return _of_numbers(loss)


def correlation() -> assay.OwnModel:
    """One minus the correlation of outputs and targets."""

    def loss(found: Tensor, heights: Tensor) -> Tensor:
        return 1 - functional.cosine_similarity(found - found.mean(), heights - heights.mean(), dim=0).mean()

    return _of_numbers(loss)


def root() -> assay.OwnModel:
    """The root of the mean squared error."""
    return _of_numbers(lambda found, heights: functional.mse_loss(found, heights).sqrt())


def summed() -> assay.OwnModel:
    """A sum where a mean is asked for."""
    return _of_numbers(lambda found, heights: 0.01 * functional.mse_loss(found, heights, reduction="sum"))
