"""Checks that a model can start from another model's weights, and adopts the fields that are not set.

A field that is not set takes the checkpoint's value. A preset's shape gives way too, because a user who names a
checkpoint with a preset wants the preset's training. A field that was set in a file or an override must equal the
checkpoint's. All differences are listed at once, as overrides that can be pasted.
"""

from typing import Any

from assay.config.model import ModelConfig
from assay.errors import UsageError

FUNCTION = (
    *("n_layer", "n_head", "n_embd", "vocab_size", "n_kv_head", "n_head_dim", "n_hidden", "bias", "qkv_bias", "norm"),
    *("norm_eps", "norm_position", "position", "rotary_base", "rotary_factor", "rotary_context", "activation"),
    *("n_expert", "n_expert_active", "qk_norm", "logit_softcap", "tie_embeddings"),
)
"""Fields that determine the function that a model computes, independent of its training."""

SHAPE = (*FUNCTION, "context_length")
"""Fields that a run adopts from the model whose weights it starts from."""


def adopt_shape(ours: ModelConfig, theirs: ModelConfig) -> ModelConfig:
    """Return `ours` with the values of `theirs` in every field of `SHAPE` that `ours` leaves unset."""
    taken = {
        name: getattr(theirs, name)
        for name in SHAPE
        if name not in ours.model_fields_set and getattr(theirs, name) is not None
    }
    return ours.model_copy(update=taken)


def disagreements(ours: ModelConfig, theirs: ModelConfig, *, hugging_face: bool) -> dict[str, Any]:
    """Return the fields in which the two models compute different functions, with the checkpoint's values.

    Our context may be shorter than a Hugging Face checkpoint's. GPT-2's biases are compared later, when they are read:
    missing ones count as zero, and our model may omit biases that are zero.
    """
    pairs = {name: (getattr(ours, name), getattr(theirs, name)) for name in FUNCTION}
    pairs["n_kv_head"] = ours.kv_heads, theirs.kv_heads
    pairs["n_hidden"] = ours.hidden, theirs.hidden
    pairs["n_head_dim"] = ours.head_dim, theirs.head_dim
    pairs["qkv_bias"] = ours.has_qkv_bias, theirs.has_qkv_bias
    if hugging_face and theirs.position == "learned":
        del pairs["bias"], pairs["qkv_bias"]
    if ours.position == theirs.position == "learned":
        pairs["context_length"] = ours.context_length, theirs.context_length
        if hugging_face and ours.context_length <= theirs.context_length:
            del pairs["context_length"]
    if ours.vocab_size is None:
        del pairs["vocab_size"]
    if ours.position != "rotary":
        del pairs["rotary_base"], pairs["rotary_factor"]
    if ours.position != "rotary" or ours.rotary_factor == 1.0:
        del pairs["rotary_context"]
    if ours.n_expert is None:
        del pairs["n_expert_active"]
    return {name: has for name, (wants, has) in pairs.items() if has != wants}


def check_fit(ours: ModelConfig, theirs: ModelConfig, source: object, *, hugging_face: bool) -> None:
    """Raise `UsageError` that lists every field in which `ours` differs from the checkpoint `source`."""
    found = disagreements(ours, theirs, hugging_face=hugging_face)
    if found:
        wanted = " ".join(f"model.{name}={_plain(value)}" for name, value in found.items())
        now = ", ".join(_plain(getattr(ours, name)) for name in found)
        raise UsageError(f"the weights of {source} do not fit the configuration; set {wanted} (now {now})")


def _plain(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
