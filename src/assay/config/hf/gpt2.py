"""GPT-2's configuration: learned positions, LayerNorm, an MLP of two matrices, and biases everywhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.config.model import EPSILON, ModelConfig
from assay.errors import UsageError

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh"}
"""Our activations by their Hugging Face names; an export writes the first name that matches."""

FIXED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
"""Keys that change the function of a GPT-2 model, with the only values that our models support."""


def read(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of a `ModelConfig`. Raises `UsageError` if our model cannot compute the same function."""
    activation = values.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise UsageError(f"{path} has activation_function={activation!r}; only {', '.join(ACTIVATIONS)} can be read")
    for name, needed in FIXED.items():
        if values.get(name, needed) != needed:
            raise UsageError(f"{path} has {name}={values[name]!r}; only {needed!r} can be read")
    return {
        "n_layer": values.get("n_layer", 12),
        "n_head": values.get("n_head", 12),
        "n_embd": values.get("n_embd", 768),
        "vocab_size": values.get("vocab_size", 50257),
        "context_length": values.get("n_positions", 1024),
        "n_hidden": values.get("n_inner"),
        "dropout": values.get("resid_pdrop", 0.1),
        "bias": values.get("bias", True),
        "norm_eps": values.get("layer_norm_epsilon", EPSILON),
        "activation": ACTIVATIONS[activation],
        "tie_embeddings": values.get("tie_word_embeddings", True),
        "init_std": values.get("initializer_range", 0.02),
    }


def config_values(config: ModelConfig) -> dict[str, Any]:
    """Return the `config.json` of a model that GPT-2 can express."""
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocabulary,
        "n_positions": config.context_length,
        "n_ctx": config.context_length,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.hidden,
        "activation_function": activation,
        "layer_norm_epsilon": config.norm_eps,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie_embeddings,
        "bias": config.bias,
        "bos_token_id": None,
        "eos_token_id": None,
        **dropouts,
        **FIXED,
    }
