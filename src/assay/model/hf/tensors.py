"""Conversion between GPT-2's tensors and assay's: the same numbers under other names and in other orders.

Three things differ. GPT-2 stores linear weights input-first (`Conv1D`, `[in, out]`), assay output-first. GPT-2's fused
projection stacks all queries, then all keys, then all values, `[3, heads, head_dim]`; assay's is grouped by key/value
head, `[heads, 3, head_dim]`. GPT-2 always has biases: a model without biases is written with zeros, and can be read if
they are zero or absent. All three are permutations and paddings, so gradients are converted like weights.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.config.gpt2 import ACTIVATIONS
from assay.errors import UsageError
from assay.model.weights import checked, parameter_shapes

_NAMES = {
    "embedding.token": "wte",
    "embedding.position": "wpe",
    "attention_norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.projection": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
    "head.norm": "ln_f",
}


class _Place(NamedTuple):
    """Names of one tensor in assay and in GPT-2, and its conversion in both directions."""

    ours: str
    theirs: str
    read: Callable[[Tensor], Tensor]
    write: Callable[[Tensor], Tensor]


def from_hf(tensors: Mapping[str, Tensor], config: ModelConfig, source: object) -> dict[str, Tensor]:
    """Convert tensors by GPT-2's names, with or without the prefix `transformer.`, to assay's, float32.

    Raises `UsageError` if GPT-2 cannot express `config`, or if a tensor is missing, of another shape, or unknown.
    """
    _expressible(config)
    left = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    shapes = parameter_shapes(config)
    state: dict[str, Tensor] = {}
    for place, wanted in _places(config):
        found = left.pop(place.theirs, None)
        if place.ours not in shapes:
            if found is not None and found.any():
                raise UsageError(f"{source} has a bias {place.theirs!r} that is not zero; set model.bias=true")
            continue
        if found is None:
            raise UsageError(f"{source} has no tensor {place.theirs!r}; the GPT-2 checkpoint is not complete")
        if place.theirs == "wpe.weight":
            found = found[: config.context_length]
        if found.shape != wanted:
            shapes_differ = f"of shape {list(found.shape)}, and the configuration needs {list(wanted)}"
            raise UsageError(f"{source} has {place.theirs!r} {shapes_differ}; use the checkpoint's own configuration")
        state[place.ours] = place.read(found).to(torch.float32).contiguous()
    _nothing_left(left, state, source)
    return state


def to_hf(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert weights or gradients by assay's names to GPT-2's, with zero biases of their dtype if `config` has none.

    Raises `UsageError` if GPT-2 cannot express `config` or `state` does not fit it.
    """
    _expressible(config)
    weights = checked(state, config, "the model")
    tensors, dtype = {}, next(iter(weights.values())).dtype
    for place, shape in _places(config):
        prefix = "" if place.theirs.startswith("lm_head.") else "transformer."
        tensor = place.write(weights[place.ours]) if place.ours in weights else torch.zeros(shape, dtype=dtype)
        tensors[prefix + place.theirs] = tensor
    return tensors


def _places(config: ModelConfig) -> Iterator[tuple[_Place, torch.Size]]:
    """Yield every tensor that GPT-2 has under this configuration, biases included, with its shape in GPT-2."""
    for ours, shape in parameter_shapes(config.model_copy(update={"bias": True})).items():
        place = _place(ours, config)
        yield place, place.write(torch.empty(shape, device="meta")).shape


def _place(ours: str, config: ModelConfig) -> _Place:
    module, _, kind = ours.rpartition(".")
    if module == "head.projection":
        return _Place(ours, "lm_head.weight", _as_it_is, _as_it_is)
    layer, inner = "", module
    if module.startswith("blocks."):
        _, index, inner = module.split(".", 2)
        layer = f"h.{index}."
    theirs = f"{layer}{_NAMES[inner]}.{kind}"
    if inner == "attention.qkv":
        return _Place(ours, theirs, lambda x: _by_head(_turn(x), config), lambda x: _turn(_by_kind(x, config)))
    if inner.startswith(("attention.", "mlp.")):
        return _Place(ours, theirs, _turn, _turn)
    return _Place(ours, theirs, _as_it_is, _as_it_is)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _turn(tensor: Tensor) -> Tensor:
    """Transpose `[in, out]` ↔ `[out, in]`; biases have one dimension and are unchanged."""
    return tensor.t()


def _by_head(rows: Tensor, config: ModelConfig) -> Tensor:
    """Reorder rows `[3, heads, head_dim]` → `[heads, 3, head_dim]`."""
    return rows.reshape(3, config.n_head, config.head_dim, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def _by_kind(rows: Tensor, config: ModelConfig) -> Tensor:
    """Reorder rows `[heads, 3, head_dim]` → `[3, heads, head_dim]`."""
    return rows.reshape(config.n_head, 3, config.head_dim, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def _expressible(config: ModelConfig) -> None:
    """Raise `UsageError` for the first setting of `config` that GPT-2 cannot express."""
    activation = config.activation if config.activation in ACTIVATIONS.values() else "gelu or gelu_tanh"
    for name, value, needed in (
        ("position", config.position, "learned"),
        ("norm", config.norm, "layer"),
        ("norm_position", config.norm_position, "pre"),
        ("activation", config.activation, activation),
        ("qk_norm", config.qk_norm, False),
        ("n_expert", config.n_expert, None),
        ("n_kv_head", config.kv_heads, config.n_head),
    ):
        if value != needed:
            raise UsageError(
                f"GPT-2 cannot express model.{name}={value}, only {needed}; export it with --format safetensors"
            )


def _nothing_left(left: Mapping[str, Tensor], state: Mapping[str, Tensor], source: object) -> None:
    """Raise `UsageError` for a tensor that was not used, except causal masks and a copy of the tied weight."""
    for name, tensor in left.items():
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        if name != "lm_head.weight":
            raise UsageError(
                f"{source} has a tensor {name!r} that the configuration lacks; use the checkpoint's own configuration"
            )
        if not torch.equal(tensor.to(torch.float32), state["embedding.token.weight"]):
            raise UsageError(f"{source} has a separate output projection; set model.tie_embeddings=false")
