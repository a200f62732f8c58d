"""Import and export of Hugging Face checkpoints: `config.json` and safetensors, in one file or in shards.

GPT-2 and the family of Llama, Mistral, Qwen2 and Qwen3 are read. All but Mistral are written, which is a Llama to us;
`store/trained_model.py` keeps the file of the model that was read. Nothing is ever unpickled. If a checkpoint has more
positions than the configuration's context, the first ones are used: a causal decoder computes the same on shorter
inputs. GPT-2 has three dropouts; resid_pdrop is read, and training may change it.

Tensors are the same numbers under other names and in other orders. All conversions are permutations, joins and
paddings, so gradients are converted like weights. A tensor of ours is one of theirs or several, such as their queries,
keys and values. The model's parts decide its family: Llama's, or else GPT-2's, which refuses what it lacks.

GPT-2 stores linear weights input-first (`Conv1D`, `[in, out]`), assay output-first. GPT-2's fused projection stacks all
queries, then all keys, then all values, `[3, heads, head_dim]`; assay's is grouped by key/value head,
`[heads, 3, head_dim]`. GPT-2 always has biases: a model without biases is written with zeros, and can be read if they
are zero or absent.

Linear weights of this family lie as ours do. Queries, keys and values are three matrices there, and one
here, whose rows are grouped by key/value head, `[kv_heads, queries per group + 2, head_dim]`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.config.fit import check_fit
from assay.config.hf import CONFIG, check_context, config_from_hf, hf_config
from assay.config.hf import tensors as naming
from assay.config.hf.checkpoint_files import WEIGHTS, shard_of
from assay.config.hf.gpt2 import ACTIVATIONS
from assay.config.hf.llama import alike, kind_of
from assay.config.hf.tensors import OUTPUT, Naming, where, with_own_head
from assay.errors import UsageError
from assay.model.gpt import TIED
from assay.model.weights import (
    NOTHING,
    Beside,
    check_state,
    new_folder,
    parameter_shapes,
    read_safetensors,
    write_beside,
    write_safetensors,
)


class TensorNames(NamedTuple):
    """Name of one tensor in assay, its names in the family, and its conversion in both directions."""

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Family:
    """One kind of Hugging Face model: its names, and the models that it can express."""

    naming: Naming
    place: Callable[[str, tuple[str, ...], ModelConfig], TensorNames]
    """Place of a parameter that is not the output projection, by its name and its names in the family."""
    check: Callable[[ModelConfig], None]
    """Raises `UsageError` for a model that the family cannot express."""

    def places(self, config: ModelConfig) -> Iterator[tuple[TensorNames, tuple[torch.Size, ...]]]:
        """Yield every tensor that the family has under this configuration, with its shapes there."""
        padded = self.naming.pads_biases
        whole = config.model_copy(update={"bias": True, "qkv_bias": None}) if padded else config
        for ours, shape in parameter_shapes(whole).items():
            names = self.naming.names(ours)
            place = unchanged_place(ours, names) if ours == TIED[0][0] else self.place(ours, names, config)
            yield place, tuple(one.shape for one in place.write(torch.empty(shape, device="meta")))


def _one(tensors: Sequence[Tensor]) -> Tensor:
    (tensor,) = tensors
    return tensor


def _alone(tensor: Tensor) -> Sequence[Tensor]:
    return (tensor,)


def unchanged_place(ours: str, theirs: tuple[str, ...]) -> TensorNames:
    """Return the place of a tensor that is the same in both."""
    return TensorNames(ours, theirs, _one, _alone)


def _gpt2_place(ours: str, theirs: tuple[str, ...], config: ModelConfig) -> TensorNames:
    inner = where(ours).inner
    if inner == "attention.qkv":
        return _turned(ours, theirs, lambda x: _by_head(_turn(x), config), lambda x: _turn(_by_kind(x, config)))
    if inner.startswith(("attention.", "mlp.")):
        return _turned(ours, theirs, _turn, _turn)
    return unchanged_place(ours, theirs)


def _turned(
    ours: str, theirs: tuple[str, ...], read: Callable[[Tensor], Tensor], write: Callable[[Tensor], Tensor]
) -> TensorNames:
    return TensorNames(ours, theirs, lambda found: read(found[0]), lambda tensor: (write(tensor),))


def _turn(tensor: Tensor) -> Tensor:
    """Transpose `[in, out]` ↔ `[out, in]`; biases have one dimension and are unchanged."""
    return tensor.t()


def _by_head(rows: Tensor, config: ModelConfig) -> Tensor:
    """Reorder rows `[3, heads, head_dim]` → `[heads, 3, head_dim]`."""
    return rows.reshape(3, config.n_head, config.head_dim, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def _by_kind(rows: Tensor, config: ModelConfig) -> Tensor:
    """Reorder rows `[heads, 3, head_dim]` → `[3, heads, head_dim]`."""
    return rows.reshape(config.n_head, 3, config.head_dim, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def _check_gpt2(config: ModelConfig) -> None:
    """Raise `UsageError` for the first setting of `config` that GPT-2 cannot express."""
    activation = config.activation if config.activation in ACTIVATIONS.values() else "gelu or gelu_tanh"
    for name, value, needed in (
        ("position", config.position, "learned"),
        ("norm", config.norm, "layer"),
        ("norm_position", config.norm_position, "pre"),
        ("activation", config.activation, activation),
        ("qk_norm", config.qk_norm, False),
        ("logit_softcap", config.logit_softcap, None),
        ("n_expert", config.n_expert, None),
        ("n_kv_head", config.kv_heads, config.n_head),
        ("n_head_dim", config.heads_width, config.n_embd),
    ):
        if value != needed:
            raise UsageError(
                f"GPT-2 cannot express model.{name}={value}, only {needed}; export it with --format safetensors"
            )


GPT2 = Family(naming.GPT2, _gpt2_place, _check_gpt2)


def _llama_place(ours: str, theirs: tuple[str, ...], config: ModelConfig) -> TensorNames:
    if where(ours).inner == "attention.qkv":
        return TensorNames(ours, theirs, lambda found: _grouped(found, config), lambda rows: _apart(rows, config))
    return unchanged_place(ours, theirs)


def _grouped(found: Sequence[Tensor], config: ModelConfig) -> Tensor:
    """Join queries, keys and values, `[heads · head_dim, …]` each, by key/value head."""
    parts = [one.reshape(config.kv_heads, -1, config.head_dim, *one.shape[1:]) for one in found]
    return torch.cat(parts, dim=1).flatten(0, 2)


def _apart(rows: Tensor, config: ModelConfig) -> Sequence[Tensor]:
    """Return queries, keys and values, `[heads · head_dim, …]` each."""
    grouped = rows.reshape(config.kv_heads, -1, config.head_dim, *rows.shape[1:])
    return [one.flatten(0, 2) for one in torch.tensor_split(grouped, (-2, -1), dim=1)]


def _check_llama(config: ModelConfig) -> None:
    """Raise `UsageError` for the first setting of `config` that none of the three can express."""
    assert alike(config)
    kind = kind_of(config)
    title = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[kind]
    for name, value, needed in (
        ("norm_position", config.norm_position, "pre"),
        ("logit_softcap", config.logit_softcap, None),
        ("n_expert", config.n_expert, None),
        ("bias", config.bias, config.bias and kind == "llama"),
        ("qkv_bias", config.has_qkv_bias, config.bias or kind == "qwen2"),
    ):
        if value != needed:
            shown = str(value).lower() if isinstance(value, bool) else value
            raise UsageError(f"{title} cannot express model.{name}={shown}; export it with --format safetensors")


LLAMA = Family(naming.LLAMA, _llama_place, _check_llama)


def load_hf(folder: Path | str, config: ModelConfig) -> dict[str, Tensor]:
    """Read the weights of a checkpoint folder, float32, by assay's names, without a tied output projection.

    Raises `UsageError` if a file is missing or unreadable, the model is of another kind, or the configuration does not
    fit the checkpoint's. It is also raised for a tensor that is missing, of another shape, or unknown.
    """
    folder = Path(folder)
    theirs, tensors = config_from_hf(folder), _read(folder)
    check_fit(config, with_own_head(theirs, config, tensors), folder, hugging_face=True)
    check_context(folder, config.context_length)
    return from_hf(tensors, config, folder)


def save_hf(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    folder: Path | str,
    beside: Beside = NOTHING,
) -> None:
    """Write `config.json` and `model.safetensors` atomically, in the form of transformers' model.

    `beside` holds further files by name, such as the tokenizer's; a `config.json` among them takes the place of ours.

    Raises `UsageError` if no family can express `config`, `state` does not fit it or the folder is not empty, and
    `StorageError` if the disk cannot be written.
    """
    tensors = to_hf(state, config)
    with new_folder(Path(folder)) as made:
        write_safetensors(tensors, made / WEIGHTS)
        for name, content in {CONFIG: hf_config(config), **beside}.items():
            write_beside(content, made / name)


def _read(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a checkpoint folder, from one file or from the shards in its index."""
    shards = shard_of(folder)
    if shards is None:
        return read_safetensors(folder / WEIGHTS)
    files = {shard: read_safetensors(folder / shard) for shard in sorted(set(shards.values()))}
    for name, shard in shards.items():
        if name not in files[shard]:
            raise UsageError(f"{folder / shard} has no tensor {name!r}, which the index lists; download it again")
    return {name: files[shard][name] for name, shard in shards.items()}


def from_hf(tensors: Mapping[str, Tensor], config: ModelConfig, source: object) -> dict[str, Tensor]:
    """Convert tensors by the family's names, with or without its prefix, to assay's, float32.

    Raises `UsageError` if the family cannot express `config`, or if a tensor is missing, of another shape, or unknown.
    """
    family = _family(config)
    family.check(config)
    left: dict[str, Tensor] = {}
    for full, tensor in tensors.items():
        name = full.removeprefix(family.naming.prefix)
        if name in left:
            raise UsageError(f"{source} has {name!r} twice, with and without {family.naming.prefix!r}; take one out")
        left[name] = tensor
    shapes = parameter_shapes(config)
    state: dict[str, Tensor] = {}
    for place, wanted in family.places(config):
        if place.ours not in shapes:
            for name in place.theirs:
                if (extra := left.pop(name, None)) is not None and extra.any():
                    raise UsageError(f"{source} has a bias {name!r} that is not zero; set model.bias=true")
            continue
        found = [_taken(family, left, *one, config, source) for one in zip(place.theirs, wanted, strict=True)]
        state[place.ours] = place.read(found).to(torch.float32).contiguous()
    _nothing_left(family, left, state, source)
    return state


def to_hf(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert weights or gradients by assay's names to the family's, with zeros for biases that `config` lacks.

    Raises `UsageError` if the family cannot express `config` or `state` does not fit it.
    """
    family = _family(config)
    family.check(config)
    weights = check_state(state, config, "the model")
    tensors, dtype = {}, next(iter(weights.values())).dtype
    for place, shapes in family.places(config):
        padding = (torch.zeros(shape, dtype=dtype) for shape in shapes)
        written = place.write(weights[place.ours]) if place.ours in weights else padding
        for name, tensor in zip(place.theirs, written, strict=True):
            tensors[name if name == OUTPUT else family.naming.prefix + name] = tensor
    return tensors


def _family(config: ModelConfig) -> Family:
    return LLAMA if alike(config) else GPT2


def _taken(
    family: Family, left: dict[str, Tensor], name: str, wanted: torch.Size, config: ModelConfig, source: object
) -> Tensor:
    """Remove a tensor from those that are left. Raises `UsageError` if it is missing or of another shape."""
    found = left.pop(name, None)
    if found is None:
        raise UsageError(f"{source} has no tensor {name!r}; the {family.naming.title} checkpoint is not complete")
    if name in family.naming.cut and found.ndim:
        found = found[: config.context_length]
    if found.shape != wanted:
        shapes_differ = f"of shape {list(found.shape)}, and the configuration needs {list(wanted)}"
        raise UsageError(f"{source} has {name!r} {shapes_differ}; use the checkpoint's own configuration")
    return found


def _nothing_left(family: Family, left: Mapping[str, Tensor], state: Mapping[str, Tensor], source: object) -> None:
    """Raise `UsageError` for a tensor that was not used, except unused ones and a copy of the tied weight."""
    for name, tensor in left.items():
        if name.endswith(family.naming.unused):
            continue
        if name != OUTPUT:
            raise UsageError(
                f"{source} has a tensor {name!r} that the configuration lacks; use the checkpoint's own configuration"
            )
        if not torch.equal(tensor.to(torch.float32), state[TIED[0][1]]):
            raise UsageError(f"{source} has a separate output projection; set model.tie_embeddings=false")
