"""The configurations of Llama, Mistral, Qwen2 and Qwen3: rotary positions, RMSNorm, SwiGLU and grouped queries.

They are one model with variations. Llama has biases everywhere or nowhere. Mistral is a Llama without biases, and may
have a window, which must reach no position. SmolLM and SmolLM2 are Llamas by their files. Qwen2 has biases on queries,
keys and values only. Qwen3 normalizes queries and keys, and its heads need not fill the width.

Rotations come in two forms: the plain ones, and those that Llama 3.1 slowed for longer contexts (`rope_type` "llama3").
Since version 5 transformers writes them under `rope_parameters`, before under `rope_theta` and `rope_scaling`; both are
read.

Their dropout is of attention's weights only and ours is not, so it is not read.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.config.model import ModelConfig
from assay.errors import UsageError

TYPES = ("llama", "mistral", "qwen2", "qwen3")
DEFAULTS = {
    "mistral": {"num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096},
}
"""Values of keys that a file of a family may lack, where they are not those of the others (`MistralConfig`)."""

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_NEEDED = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embd": "hidden_size",
    "n_hidden": "intermediate_size",
    "vocab_size": "vocab_size",
}
"""Keys that every configuration has, by our names."""
_HEAD_DIM = {"qwen3": 128}
"""Width of a head where the configuration does not say it; the others divide the width by the heads."""
_TURNS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
"""Limits between slowed and kept rotations, the same in all Llamas since 3.1 (`assay.model.attention`)."""


def alike(config: ModelConfig) -> bool:
    """True if a model has the parts of this family, and not those of GPT-2."""
    return (config.position, config.norm, config.activation) == ("rotary", "rms", "swiglu")


def kind_of(config: ModelConfig) -> str:
    """Return the `model_type` that can express a model of this family: Llama, or the Qwen with what it lacks."""
    if config.qk_norm:
        return "qwen3"
    return "qwen2" if config.has_qkv_bias != config.bias else "llama"


def read(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of a `ModelConfig`. Raises `UsageError` if our model cannot compute the same function."""
    kind = values["model_type"]
    values = {**DEFAULTS.get(kind, {}), **values}
    if not isinstance(values.get("layer_types") or [], list):
        raise UsageError(f"{path} has layer_types={values['layer_types']!r}, which is no list; download it again")
    if kind == "mistral" and not _window_reaches_nothing(values):
        window = values["sliding_window"]
        raise UsageError(
            f"{path} has sliding_window={window!r}, which is shorter than its context, and assay has no windows; "
            f"for shorter texts, write max_position_embeddings={window!r} into it"
        )
    for name, has, needed in _restricted(values):
        if has != needed:
            raise UsageError(f"{path} has {name}={has!r}; only {needed!r} can be read")
    biases = {name: bool(values.get(name)) for name in ("attention_bias", "mlp_bias")}
    if kind == "llama" and len(set(biases.values())) > 1:
        alone, other = sorted(biases, key=lambda name: not biases[name])
        raise UsageError(f"{path} has {alone}=true without {other}; only biases of both, or of none, can be read")
    missing = [theirs for theirs in _NEEDED.values() if values.get(theirs) is None]
    if missing:
        raise UsageError(f"{path} has no {missing[0]}; download it again")
    fields = {ours: values[theirs] for ours, theirs in _NEEDED.items()}
    return {
        **fields,
        **_rotations(values, path),
        "n_kv_head": values.get("num_key_value_heads"),
        "n_head_dim": values.get("head_dim", _HEAD_DIM.get(kind)),
        "context_length": values.get("max_position_embeddings", 2048),
        "bias": kind != "qwen2" and bool(values.get("attention_bias", False)),  # a Qwen2 does not read the key
        "qkv_bias": True if kind == "qwen2" else None,
        "qk_norm": kind == "qwen3",
        "norm": "rms",
        "norm_eps": values.get("rms_norm_eps", 1e-6),
        "position": "rotary",
        "activation": "swiglu",
        "tie_embeddings": values.get("tie_word_embeddings", False),
        "init_std": values.get("initializer_range", 0.02),
    }


def config_values(config: ModelConfig) -> dict[str, Any]:
    """Return the `config.json` of a model that this family can express."""
    kind = kind_of(config)
    slowed = {
        "rope_type": "llama3",
        "factor": config.rotary_factor,
        "original_max_position_embeddings": config.rotary_context,
        **_TURNS,
    }
    return {
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": kind,
        **{theirs: getattr(config, ours) for ours, theirs in _NEEDED.items()},
        "intermediate_size": config.hidden,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_length,
        "hidden_act": "silu",
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "attention_dropout": 0.0,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rotary_base,
        "rope_scaling": None if config.rotary_factor == 1.0 else slowed,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie_embeddings,
        "use_sliding_window": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _restricted(values: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    """Yield (key, value, only value that our models support)."""
    yield "hidden_act", values.get("hidden_act", "silu"), "silu"
    if values["model_type"] != "mistral" and not _window_reaches_nothing(values):
        yield "use_sliding_window", values.get("use_sliding_window", False), False
        for one in values.get("layer_types") or ():
            yield "layer_types", one, "full_attention"
    if values["model_type"] in ("qwen3", "mistral"):
        yield "attention_bias", values.get("attention_bias", False), False


def longest_context(values: Mapping[str, Any]) -> int | None:
    """Return the number of positions beyond which a checkpoint has a window, which ours lack; None if it has none."""
    window = values.get("sliding_window", DEFAULTS.get(values["model_type"], {}).get("sliding_window"))
    used = values["model_type"] == "mistral" or (
        values.get("use_sliding_window", False) and _has_windowed_layers(values)
    )
    return window if used and isinstance(window, int) else None


def _has_windowed_layers(values: Mapping[str, Any]) -> bool:
    """Return whether some layer has a window, by the list of layers or by the first one that has it."""
    listed = values.get("layer_types")
    if listed is not None:
        return any(one != "full_attention" for one in listed)
    first, layers = values.get("max_window_layers"), values.get("num_hidden_layers")
    return not (isinstance(first, int) and isinstance(layers, int) and first >= layers)


def _window_reaches_nothing(values: Mapping[str, Any]) -> bool:
    """Return whether a sliding window changes no layer: it begins after the last one, or is as long as the context.

    A file of transformers lists the layers with a window in `layer_types`; older ones say from which layer on.
    """
    window, context = values.get("sliding_window"), values.get("max_position_embeddings", 2048)
    if isinstance(window, int) and isinstance(context, int) and window >= context:
        return True
    if values["model_type"] == "mistral":  # all of its layers have the window
        return window is None
    return not _has_windowed_layers(values)


def _rotations(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return our fields of the rotations. Raises `UsageError` for a kind that ours lack."""
    given = [(name, values[name]) for name in ("rope_scaling", "rope_parameters") if values.get(name)]
    for name, one in given:
        if not isinstance(one, Mapping):
            raise UsageError(f"{path} has {name}={one!r}, which is no object with a rope_type; download it again")
    if len(given) > 1 and given[0][1] != given[1][1]:
        raise UsageError(f"{path} has both rope_scaling and rope_parameters, and they differ; take one of them out")
    said = given[0][1] if given else {}
    kind = said.get("rope_type", said.get("type", "default"))
    base = {"rotary_base": said.get("rope_theta", values.get("rope_theta", 10_000.0))}
    if said.get("partial_rotary_factor", 1.0) != 1.0:
        raise UsageError(f"{path} has partial_rotary_factor={said['partial_rotary_factor']}; only 1.0 can be read")
    if kind == "default":
        return base
    if kind != "llama3":
        raise UsageError(f"{path} has rope_type={kind!r}; only 'default' and 'llama3' can be read")
    for name, needed in _TURNS.items():
        if said.get(name, needed) != needed:
            raise UsageError(f"{path} has {name}={said[name]!r}; only {needed} can be read")
    origin = "original_max_position_embeddings"
    first = said.get(origin, values.get(origin, values.get("max_position_embeddings")))
    if values.get(origin, first) != first:
        raise UsageError(f"{path} has two values of {origin}, {first!r} and {values[origin]!r}; take one of them out")
    return {**base, "rotary_factor": said.get("factor", 1.0), "rotary_context": first}
