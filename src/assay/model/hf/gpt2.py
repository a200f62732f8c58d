"""GPT-2's tensors.

Three things differ from ours. GPT-2 stores linear weights input-first (`Conv1D`, `[in, out]`), assay output-first.
GPT-2's fused projection stacks all queries, then all keys, then all values, `[3, heads, head_dim]`; assay's is grouped
by key/value head, `[heads, 3, head_dim]`. GPT-2 always has biases: a model without biases is written with zeros, and
can be read if they are zero or absent.
"""

from collections.abc import Callable

from torch import Tensor

from assay.config import ModelConfig
from assay.config.hf import tensors
from assay.config.hf.gpt2 import ACTIVATIONS
from assay.config.hf.tensors import where
from assay.errors import UsageError
from assay.model.hf.family import Family, TensorNames, unchanged


def _place(ours: str, theirs: tuple[str, ...], config: ModelConfig) -> TensorNames:
    inner = where(ours).inner
    if inner == "attention.qkv":
        return _turned(ours, theirs, lambda x: _by_head(_turn(x), config), lambda x: _turn(_by_kind(x, config)))
    if inner.startswith(("attention.", "mlp.")):
        return _turned(ours, theirs, _turn, _turn)
    return unchanged(ours, theirs)


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


def _check(config: ModelConfig) -> None:
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
        ("n_head_dim", config.heads_width, config.n_embd),
    ):
        if value != needed:
            raise UsageError(
                f"GPT-2 cannot express model.{name}={value}, only {needed}; export it with --format safetensors"
            )


GPT2 = Family(tensors.GPT2, _place, _check)
