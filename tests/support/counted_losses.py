"""Losses of a user's own that count some of the targets, or do not add up over rows."""

from pathlib import Path

from assay.config import validate
from assay.config.run import OwnRows, ResolvedRun
from assay.optimizations import resolve_run

LENGTH = 6
"""Targets of a row."""
LOSSES = """
import assay
import torch
from torch import nn
from torch.nn import functional

LENGTH, LABELS = 6, 5


class Labels(nn.Module):
    def __init__(self, middle=nn.Tanh):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), middle(), nn.Linear(8, LENGTH * LABELS))

    def forward(self, x):
        return self.layers(x).unflatten(1, (LENGTH, LABELS))


def rows_of(x):
    \"\"\"Rows 4·i to 4·i + 3 have i mod 6 labels that do not count.\"\"\"
    labels = torch.randint(1, LABELS, (len(x), LENGTH))
    return x, labels.masked_fill(torch.arange(LENGTH) < (torch.arange(len(x)) // 4 % LENGTH)[:, None], -100)


def batches(step, seed, rows):
    return rows_of(torch.randn(rows, 4))


def validation(rows):
    torch.manual_seed(1)
    x, y = rows_of(torch.randn(50, 4))
    return list(zip(x.split(rows), y.split(rows)))


def mean(model, x, y):
    return (model(x).square().mean(2) - y).square().mean()


def ignored(model, x, y):
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def summed(model, x, y):
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum"), (y != -100).sum()


def listed(model, x, y):
    return summed(model, x, y)[0], sum(y.flatten().tolist().count(label) for label in range(LABELS))


def padded(model, x, y):
    return functional.cross_entropy(model(x).flatten(0, 1), y.clamp(min=1).flatten(), ignore_index=1)


def weights(x):
    return (x[:, :1] > 0).to(x.dtype)


def masked(model, x, y):
    return (weights(x) * model(x)[:, :, 0].square()).sum() / (weights(x).sum() * LENGTH)


def masked_sum(model, x, y):
    return (weights(x) * model(x)[:, :, 0].square()).sum(), weights(x).sum() * LENGTH


def contrastive(model, x, y):
    made, given = (functional.normalize(one, dim=1) for one in (model(x).flatten(1), x.repeat(1, 8)[:, :30]))
    return functional.cross_entropy(made @ given.T, torch.arange(len(x)))


def steep(model, x, y):
    loss = mean(model, x, y)
    return loss.detach() + (1 + x.mean().abs()) * (loss - loss.detach())


def drawn(model, x, y):
    return model(x + torch.randn(x.shape).to(x)).square().mean()


COUNTING = (ignored, summed, listed, padded)


def floats(step, seed, rows):
    return torch.randn(rows, 4), torch.rand(rows, LENGTH)


def own(loss, middle=nn.Tanh):
    given = batches if loss in COUNTING else floats
    return lambda: assay.OwnModel(Labels(middle), loss, given, validation)


def normed():
    return nn.BatchNorm1d(8)


def dropped_and_normed():
    return nn.Sequential(nn.BatchNorm1d(8), nn.Dropout())
"""


def counted_run(folder: Path, model: str, *techniques: str, batch_size: int = 24) -> ResolvedRun:
    """A run of one of these losses: `model` is an expression of the file, such as ``own(summed)``."""
    (folder / "mine.py").write_text(f"{LOSSES}\n\nbuild = {model}\n")
    values = {
        "model": {"own": "mine.py:build", "own_folder": str(folder), "vocab_size": 61, "context_length": 16},
        "training": {"batch_size": batch_size, "steps": 5, "warmup_steps": 1},
        "device": "cpu",
        "optimizations": list(techniques),
    }
    rows = OwnRows(targets=LENGTH, validation=True)
    return resolve_run(validate(values)).model_copy(update={"own_rows": rows})
