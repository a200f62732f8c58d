"""Configurations of every kind that the model knows, small, and models with all their numbers random."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from assay.config import ModelConfig
from assay.model import GPT, SdpaAttention
from support.runs import variants

VOCABULARY = 17


@st.composite
def configurations(draw: st.DrawFn) -> ModelConfig:
    heads, width = draw(st.sampled_from([(1, 4), (2, 2), (2, 4), (4, 2), (6, 4)]))
    return ModelConfig(
        n_layer=draw(st.integers(1, 2)),
        n_head=heads,
        n_kv_head=draw(st.sampled_from([None, *(n for n in range(1, heads + 1) if heads % n == 0)])),
        n_embd=heads * width,
        n_head_dim=draw(st.sampled_from([None, None, 6])),
        context_length=draw(st.integers(1, 9)),
        vocab_size=VOCABULARY,
        n_hidden=draw(st.sampled_from([None, 10])),
        **draw(variants),
    )


def random_model(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32, std: float = 0.3) -> GPT:
    """Weights, biases and norms all drawn, so that none hides behind a zero or a one."""
    model = GPT(config).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * std + centre)
    return model


def with_sdpa(model: GPT) -> GPT:
    """The same model, its attention through the fused kernel."""
    for block in model.blocks:
        block.attention.core = SdpaAttention(model.config)
    return model


def random_ids(config: ModelConfig, rows: int = 2, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.vocabulary, (rows, config.context_length), generator=generator)


def loss_and_gradients(model: GPT, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean loss of predicting each id from the ids reversed (any targets do), and every gradient by name."""
    loss = model(ids, ids.flip(1)) / ids.numel()
    names, parameters = zip(*model.named_parameters(), strict=True)
    return loss.detach(), dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))
