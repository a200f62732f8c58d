"""A GPT of 124 million parameters as textbooks write it, and a few steps of one rung of the fifth document's ladder.

    python benchmarks/textbook_gpt.py RUNG BATCH [DROPOUT]

The document (`src/assay/studies/documents/gpt124m-colab.yaml`) shows its log, and not its code. Its losses at the
start, its tied weights that begin at a loss of 36.9, and its counts of tokens fit the usual teaching code. It has 12
layers of width 768, context 512, embeddings drawn from N(0, 1), an output layer of its own, no biases of queries, keys
and values, LayerNorm and GELU written out, dropout of 0.1, and AdamW. The code here is of that kind. It runs where
torch sees a GPU, absent or not.
"""

import contextlib
import math
import sys
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 50257, 512, 768, 12, 12
STEPS = 3


class Rung(NamedTuple):
    """What a rung turns on; each keeps what the one before had."""

    half: bool = False
    compiled: bool = False
    flash: bool = False


RUNGS = {
    "baseline": Rung(),
    "mixed precision": Rung(half=True),
    "compile": Rung(half=True, compiled=True),
    "flash attention": Rung(half=True, compiled=True, flash=True),
}


class LayerNorm(nn.Module):
    """Normalize features, and scale and shift them. Shape [..., WIDTH] in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * ((x - mean) / torch.sqrt(variance + 1e-5)) + self.shift


class GELU(nn.Module):
    """The approximation by a hyperbolic tangent, operator by operator."""

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.sqrt(torch.tensor(2.0 / math.pi)) * (x + 0.044715 * torch.pow(x, 3))
        return 0.5 * x * (1 + torch.tanh(inner))


class Attention(nn.Module):
    """Causal attention of several heads, written out or fused. Shape [B, T, WIDTH] in and out."""

    def __init__(self, dropout: float, flash: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.project, self.dropout, self.flash = nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout), flash
        self.register_buffer("mask", torch.triu(torch.ones(CONTEXT, CONTEXT), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        query, key, value = (
            layer(x).view(rows, length, HEADS, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        if self.flash:
            rate = self.dropout.p if self.training else 0.0
            mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        else:
            scores = query @ key.transpose(2, 3)
            scores.masked_fill_(self.mask.bool()[:length, :length], -torch.inf)
            weights = torch.softmax(scores / key.shape[-1] ** 0.5, dim=-1)
            mixed = self.dropout(weights) @ value
        return self.project(mixed.transpose(1, 2).contiguous().view(rows, length, WIDTH))


class Block(nn.Module):
    """Attention and a feed-forward network, each with a norm before it and dropout after it."""

    def __init__(self, dropout: float, flash: bool) -> None:
        super().__init__()
        self.attention = Attention(dropout, flash)
        self.forwards = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.norms, self.dropout = nn.ModuleList((LayerNorm(), LayerNorm())), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.attention(self.norms[0](x))) + x
        return self.dropout(self.forwards(self.norms[1](x))) + x


class GPT(nn.Module):
    """Token ids [B, T] → logits [B, T, VOCABULARY]."""

    def __init__(self, dropout: float, flash: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(dropout, flash) for _ in range(LAYERS)))
        self.norm, self.head = LayerNorm(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        logits: Tensor = self.head(self.norm(self.blocks(self.dropout(x))))
        return logits


def loss_of(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy. Logits end with this function, as in textbooks, so backward runs without them."""
    logits = model(ids)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(rung: Rung, batch: int, dropout: float) -> None:
    """Take three steps on the GPU, as the document's loop does: forward, backward, update."""
    torch.set_float32_matmul_precision("high")
    plain = GPT(dropout, rung.flash).cuda()
    model = torch.compile(plain) if rung.compiled else plain
    optimizer = torch.optim.AdamW(plain.parameters(), lr=5e-4, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=rung.half)
    for _ in range(STEPS):
        ids = torch.zeros(batch, CONTEXT, dtype=torch.long, device="cuda")
        targets = torch.zeros_like(ids)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16) if rung.half else contextlib.nullcontext():
            loss = loss_of(model, ids, targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    train(RUNGS[sys.argv[1]], int(sys.argv[2]), float((*sys.argv[3:], "0.1")[0]))
