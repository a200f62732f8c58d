"""Documents of many lengths, as padded rows or packed into full ones: what a training step holds for each.

A padded batch has a document a row, and is as long as its longest. Labels in the padding are ignored. A packed batch
has full rows, which are cut out of all documents in a line.

    assay measure examples/variable_lengths.py:padded_step
    assay absent h100 --compare-allocators -- python examples/variable_lengths.py --batches padded
"""

import argparse
import random
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256
IGNORED = -100
Batches = Iterator[tuple[Tensor, Tensor]]
"""Token ids and labels of each step, `[rows, length]`."""


def lengths(longest: int, seed: int = 0) -> Iterator[int]:
    """Yield lengths of documents without end: log-normal, with a median of a quarter of the longest."""
    draw = random.Random(seed)
    while True:
        yield max(2, min(longest, round(longest / 4 * draw.lognormvariate(0, 0.8))))


def padded(rows: int, longest: int, multiple: int = 1) -> Batches:
    """Yield a document a row, padded to the longest of its batch, or to the next multiple."""
    drawn = lengths(longest)
    while True:
        counts = list(islice(drawn, rows))
        length = min(longest, -(-max(counts) // multiple) * multiple)
        ids = torch.randint(BYTES, (rows, length))
        labels = ids.masked_fill(torch.arange(length) >= torch.tensor(counts)[:, None], IGNORED)
        yield ids, labels


def packed(rows: int, longest: int) -> Batches:
    """Yield full rows."""
    while True:
        ids = torch.randint(BYTES, (rows, longest))
        yield ids, ids


class Decoder(nn.Module):
    """A small decoder of torch's own layers."""

    def __init__(self, vocabulary: int, width: int, layers: int, longest: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        one = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(one, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of the labels that count; a label is the next token."""
        length = ids.size(1)
        later = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        x = self.token(ids) + self.position.weight[:length]
        logits = self.head(self.layers(x, mask=later, is_causal=True))[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)


def step_of(model: Decoder, batches: Batches, device: str) -> Callable[[], Tensor]:
    """Return a training step, which takes the next batch."""
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> Tensor:
        ids, labels = (one.to(device) for one in next(batches))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss: Tensor = model(ids, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def padded_step() -> Callable[[], Tensor]:
    """A small step over padded rows, for `assay measure`."""
    return step_of(Decoder(BYTES, 64, 2, 256), padded(8, 256), "cpu")


def packed_step() -> Callable[[], Tensor]:
    """A small step over packed rows, for `assay measure`."""
    return step_of(Decoder(BYTES, 64, 2, 256), packed(8, 256), "cpu")


def main() -> None:
    """Train on the device, and say how many labels of a step count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", choices=("padded", "packed"), default="padded")
    parser.add_argument("--multiple", type=int, default=1, help="pad to a multiple of this length")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=50)
    given = parser.parse_args()
    batches, seen = padded(given.rows, given.longest, given.multiple), [0, 0]
    if given.batches == "packed":
        batches = packed(given.rows, given.longest)

    def counted() -> Batches:
        for ids, labels in batches:
            seen[0] += ids.numel()
            seen[1] += int((labels != IGNORED).sum())
            yield ids, labels

    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = step_of(Decoder(given.vocabulary, given.width, given.layers, given.longest), counted(), device)
    for _ in range(given.steps):
        step()
    print(f"{seen[1] / given.steps:,.0f} tokens of a step count, {1 - seen[1] / seen[0]:.0%} is padding")


if __name__ == "__main__":
    main()
