"""The other trainers that assay is held against: a plain PyTorch loop around nanoGPT's or transformers' GPT-2.

Each peer starts from weights that are imported into our model, so that the two do the same work on the same numbers; a
benchmark that does not find the same losses is comparing unlike things. nanoGPT is read from a folder that the caller
names; nothing of it is kept here.
"""

import contextlib
import importlib.util
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.config import ModelConfig, TrainingConfig
from assay.model.hf import from_hf

Batch = tuple[Tensor, Tensor]
Update = Callable[[Batch, float], float]
"""One training step of a peer: (batch, learning rate) → the mean loss before the update."""


@dataclass(frozen=True)
class Peer:
    """A model that is not ours, and its weights under our names."""

    name: str
    module: nn.Module
    config: ModelConfig
    """Ours that computes the same function."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """(ids, targets), each `[B, T]` → mean cross-entropy."""
    weights: dict[str, Tensor]
    optimizer: Callable[[TrainingConfig], torch.optim.Optimizer]


def nanogpt(folder: Path, config: ModelConfig, seed: int) -> Peer:
    """nanoGPT's model as initialised by its own code after `torch.manual_seed(seed)`."""
    source = _module(folder / "model.py")
    shape = {name: getattr(config, name) for name in ("n_layer", "n_head", "n_embd", "vocab_size", "dropout", "bias")}
    torch.manual_seed(seed)
    with _quiet():
        model = source.GPT(source.GPTConfig(block_size=config.context_length, **shape))
    linear = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    tensors = {name: x.t() if name.endswith(linear) else x for name, x in model.state_dict().items()}

    def optimizer(training: TrainingConfig) -> torch.optim.Optimizer:
        betas = (training.beta1, training.beta2)
        with _quiet():
            return model.configure_optimizers(training.weight_decay, training.learning_rate, betas, "cpu")

    return Peer("nanoGPT", model, config, lambda ids, to: model(ids, to)[1], _ours(tensors, config), optimizer)


def nanogpt_checkpoint(folder: Path, path: Path) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of a checkpoint that nanoGPT's script wrote: (ids, targets), each `[B, T]` → mean cross-entropy."""
    source, found = _module(folder / "model.py"), torch.load(path, weights_only=True)
    with _quiet():
        model = source.GPT(source.GPTConfig(**found["model_args"])).eval()
    model.load_state_dict(found["model"])
    return lambda ids, targets: model(ids, targets)[1]


def transformers_gpt2(config: ModelConfig, seed: int, *, fused_gelu: bool) -> Peer:
    """transformers' GPT2LMHeadModel with its SDPA attention; its GELU of several operations, or torch's of one."""
    from transformers import GPT2Config, GPT2LMHeadModel

    values = {"n_layer": config.n_layer, "n_head": config.n_head, "n_embd": config.n_embd}
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)
    ends = {"bos_token_id": None, "eos_token_id": None}
    torch.manual_seed(seed)
    theirs = GPT2Config(
        **values,
        **dropouts,
        **ends,
        n_positions=config.context_length,
        vocab_size=config.vocabulary,
        activation_function="gelu_pytorch_tanh" if fused_gelu else "gelu_new",
        attn_implementation="sdpa",
        use_cache=False,
    )
    model = GPT2LMHeadModel(theirs).train()

    def loss(ids: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(ids).logits.flatten(0, 1), targets.flatten())

    same = config.model_copy(update={"bias": True, "activation": "gelu_tanh"})
    weights = _ours(model.state_dict(), same)
    name = "transformers, fused GELU" if fused_gelu else "transformers"
    return Peer(name, model, same, loss, weights, lambda training: _adamw(model, training))


def plain_loop(peer: Peer, training: TrainingConfig) -> Update:
    """The loop that one writes by hand, with the peer's optimizer: clipping by torch's own function, the loss read."""
    parameters = list(peer.module.parameters())
    optimizer = peer.optimizer(training)

    def update(batch: Batch, rate: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = peer.loss(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, training.gradient_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return update


def _adamw(module: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """torch's default implementation for the device, which on a CPU is one tensor after the other."""
    groups = [
        {"params": [p for p in module.parameters() if p.dim() >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in module.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (training.beta1, training.beta2)
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=betas, eps=training.epsilon)


def _ours(tensors: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in from_hf(tensors, config, "the peer").items()}


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"{path} does not exist; give --nanogpt a folder with nanoGPT's sources")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Their constructors print."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
