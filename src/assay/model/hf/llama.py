"""The tensors of Llama, Qwen2 and Qwen3.

Linear weights lie as ours do. Queries, keys and values are three matrices there, and one here, whose rows are grouped
by key/value head, `[kv_heads, queries per group + 2, head_dim]`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.config.hf import tensors
from assay.config.hf.llama import alike, kind_of
from assay.config.hf.tensors import where
from assay.errors import UsageError
from assay.model.hf.family import Family, TensorNames, unchanged


def _place(ours: str, theirs: tuple[str, ...], config: ModelConfig) -> TensorNames:
    if where(ours).inner == "attention.qkv":
        return TensorNames(ours, theirs, lambda found: _grouped(found, config), lambda rows: _apart(rows, config))
    return unchanged(ours, theirs)


def _grouped(found: Sequence[Tensor], config: ModelConfig) -> Tensor:
    """Join queries, keys and values, `[heads · head_dim, …]` each, by key/value head."""
    parts = [one.reshape(config.kv_heads, -1, config.head_dim, *one.shape[1:]) for one in found]
    return torch.cat(parts, dim=1).flatten(0, 2)


def _apart(rows: Tensor, config: ModelConfig) -> Sequence[Tensor]:
    """Return queries, keys and values, `[heads · head_dim, …]` each."""
    grouped = rows.reshape(config.kv_heads, -1, config.head_dim, *rows.shape[1:])
    return [one.flatten(0, 2) for one in torch.tensor_split(grouped, (-2, -1), dim=1)]


def _check(config: ModelConfig) -> None:
    """Raise `UsageError` for the first setting of `config` that none of the three can express."""
    assert alike(config)
    kind = kind_of(config)
    title = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[kind]
    for name, value, needed in (
        ("norm_position", config.norm_position, "pre"),
        ("n_expert", config.n_expert, None),
        ("bias", config.bias, config.bias and kind == "llama"),
        ("qkv_bias", config.has_qkv_bias, config.bias or kind == "qwen2"),
    ):
        if value != needed:
            shown = str(value).lower() if isinstance(value, bool) else value
            raise UsageError(f"{title} cannot express model.{name}={shown}; export it with --format safetensors")


LLAMA = Family(tensors.LLAMA, _place, _check)
