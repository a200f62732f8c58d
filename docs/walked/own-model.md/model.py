"""A small model with the interface of nanoGPT's `model.py`."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool


class GPT(nn.Module):
    """A table of tokens and a linear layer."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=config.bias)

    def forward(self, ids, targets):
        logits = self.head(self.embed(ids))
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        return torch.optim.AdamW(self.parameters(), learning_rate, betas, weight_decay=weight_decay)
